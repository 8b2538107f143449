// A service worker that leaves the server's paths alone.
const PAGE = 'page-1'
const SERVER = /^\/(auth|flux|site|data)(\/|$)/

addEventListener('install', (event) => {
  event.waitUntil(caches.open(PAGE).then((cache) => cache.add('/')))
})

addEventListener('fetch', (event) => {
  const { request } = event
  if (SERVER.test(new URL(request.url).pathname)) return
  if (request.mode === 'navigate') event.respondWith(fetch(request).catch(() => caches.match('/')))
})
