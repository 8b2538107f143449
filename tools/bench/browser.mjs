// A minimal browser that signs in.
import { Agent, request } from 'node:http'
import { text } from 'node:stream/consumers'

/** The header fields of a browser's fetch(), the same for every candidate. */
export const BROWSER_HEADERS = {
  'user-agent':
    'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36',
  accept: 'application/json',
  'accept-encoding': 'gzip, deflate, br, zstd',
  'accept-language': 'en-GB,en;q=0.9',
  'sec-fetch-site': 'same-origin',
  'sec-fetch-mode': 'cors',
  'sec-fetch-dest': 'empty',
}

const NAVIGATION = {
  ...BROWSER_HEADERS,
  accept: 'text/html',
  'sec-fetch-mode': 'navigate',
  'sec-fetch-dest': 'document',
  'sec-fetch-site': 'none',
}
const MAX_HOPS = 8
const AT_ONCE = 8
const agent = new Agent({ keepAlive: true, maxSockets: 16 })

/** One GET without following redirects. */
export function get(url, headers = {}) {
  return new Promise((resolve, reject) => {
    const sent = request(url, { agent, headers }, (response) => {
      const { statusCode: status, headers } = response
      text(response).then((body) => resolve({ status, headers, body }), reject)
    })
    sent.on('error', reject).end()
  })
}

/** Resolves once `url` responds 200 to a GET, else rejects. */
export async function require200(url) {
  const { status } = await get(url)
  if (status !== 200) throw new Error(`${url} responds ${status}`)
}

/** Signs `count` browsers in from `url`, through the authorization server and back. Returns their `Cookie` headers. */
export async function signInMany(url, count) {
  const cookies = []
  while (cookies.length < count) {
    const some = Array.from({ length: Math.min(AT_ONCE, count - cookies.length) }, () => signIn(url))
    cookies.push(...(await Promise.all(some)))
  }
  return cookies
}

async function signIn(url) {
  const jar = new Map()
  const home = new URL(url).origin
  const cookies = () => [...jar].map(([name, value]) => `${name}=${value}`).join('; ')
  let at = new URL(url)
  for (let hop = 0; hop < MAX_HOPS; hop += 1) {
    const atHome = at.origin === home
    const { status, headers, body } = await get(at, {
      ...NAVIGATION,
      ...(atHome && jar.size > 0 ? { cookie: cookies() } : {}),
    })
    if (status >= 400) throw new Error(`${at}: ${status} ${body}`)
    if (atHome) keepCookies(jar, headers['set-cookie'] ?? [])
    if (atHome && (at.searchParams.has('code') || headers.location === undefined)) return cookies()
    at = new URL(headers.location, at)
  }
  throw new Error(`${url}: the redirects do not end`)
}

function keepCookies(jar, lines) {
  for (const line of lines) {
    const [pair, ...attributes] = line.split(';')
    const at = pair.indexOf('=')
    const gone = attributes.some((attribute) => /^\s*(max-age=0|expires=thu, 01 jan 1970)/i.test(attribute))
    if (gone) jar.delete(pair.slice(0, at))
    else jar.set(pair.slice(0, at), pair.slice(at + 1))
  }
}
