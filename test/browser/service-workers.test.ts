import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { read } from '../repository/files.ts'
import { startDemo } from './demo.ts'
import {
  checkBehindWorker,
  checkWithoutExclusion,
  installWorker,
  makeWorkerPage,
  tabOf,
} from './worker-page.ts'

// Workers that do what those of Angular and Workbox do; test/verify/service-workers.test.ts has the real ones.

const BEGIN = `
addEventListener('install', (event) => event.waitUntil(caches.open('page').then((cache) => cache.addAll(['/', '/page.js'])).then(() => skipWaiting())))
addEventListener('activate', (event) => event.waitUntil(clients.claim()))
`

/** As Angular's: it answers every request, also those that it only passes on. */
const likeAngular = (isExcluded: string) => `${BEGIN}
addEventListener('fetch', (event) => {
  const { request } = event
  const { pathname } = new URL(request.url)
  const isPage = request.mode === 'navigate' && !(${isExcluded}) && !/\\.[^/]*$/.test(pathname)
  event.respondWith(caches.match(isPage ? '/' : request).then((kept) => kept ?? fetch(request)))
})
`

/** As the NavigationRoute of Workbox: what it excludes it does not touch. */
const likeWorkbox = (isExcluded: string) => `${BEGIN}
addEventListener('fetch', (event) => {
  const { pathname } = new URL(event.request.url)
  if (event.request.mode === 'navigate' && !(${isExcluded})) event.respondWith(caches.match('/'))
})
`

const OWN = '/^\\/(auth|flux|site|data)(\\/|$)/.test(pathname)'

const WORKERS = {
  'the recipe of docs/spa.md': read('examples/recipes/sw.js'),
  "a worker as Angular's": likeAngular(OWN),
  "a worker as Workbox's": likeWorkbox(OWN),
}

const browser = await launchChromium(t)

for (const [name, text] of Object.entries(WORKERS)) {
  t.test(`behind ${name} people sign in, and links and errors come as pages`, async (t) => {
    const demo = await startDemo(t, browser, { env: { STATIC_DIR: makeWorkerPage({ 'sw.js': text }) } })
    const tab = tabOf(await demo.context.newPage())
    await installWorker(tab, demo.reverseProxy.publicUrl, '/sw.js')
    await checkBehindWorker(t, tab, demo)
  })
}

for (const [name, text] of [
  ['Angular', likeAngular('false')],
  ['Workbox', likeWorkbox('false')],
] as const) {
  t.test(`a worker as that of ${name} that takes the sign-in is reported`, async (t) => {
    const demo = await startDemo(t, browser, { env: { STATIC_DIR: makeWorkerPage({ 'sw.js': text }) } })
    const tab = tabOf(await demo.context.newPage())
    await installWorker(tab, demo.reverseProxy.publicUrl, '/sw.js')
    await checkWithoutExclusion(t, tab, demo)
  })
}
