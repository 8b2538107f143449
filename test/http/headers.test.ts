import t from 'tap'
import { freePort } from '../helpers/ports.ts'
import { cookieWithoutSession, signIn, startBff, startSandbox } from '../helpers/system.ts'
import { field, portOf, speak } from './wire.ts'

const OWN = 'Sec-Fetch-Site: same-origin\r\n'
const SIGNED = `${cookieWithoutSession().join(': ')}\r\n`
const JSON_TYPE = 'Content-Type: application/json\r\n'
const PAGE = 'Sec-Fetch-Mode: navigate\r\n'

/** One of every kind of answer that is ours: by route, hook, router, parser and page. */
const KINDS: readonly (readonly [what: string, status: number, request: string])[] = [
  ['facts', 200, 'GET /auth/session HTTP/1.1\r\n'],
  ['facts, head', 200, 'HEAD /auth/session HTTP/1.1\r\n'],
  ['description', 200, 'GET /openapi.json HTTP/1.1\r\n'],
  ['redirect', 303, 'GET /auth/login HTTP/1.1\r\n'],
  ['page', 200, `GET /auth/login HTTP/1.1\r\n${PAGE}Sec-Fetch-Site: cross-site\r\n`],
  ['fault page', 400, `GET /auth/callback/x HTTP/1.1\r\n${PAGE}`],
  ['no content', 204, `POST /auth/logout HTTP/1.1\r\n${OWN}`],
  ['not signed in', 401, `GET /flux/a HTTP/1.1\r\n${OWN}`],
  ['not signed in, head', 401, `HEAD /flux/a HTTP/1.1\r\n${OWN}`],
  ['cross origin', 403, 'GET /flux/a HTTP/1.1\r\n'],
  ['unknown path', 404, 'GET /nothing HTTP/1.1\r\n'],
  ['other method', 405, 'DELETE /flux/a HTTP/1.1\r\n'],
  ['too large', 413, `PUT /site/1 HTTP/1.1\r\n${OWN}${SIGNED}${JSON_TYPE}Content-Length: 70000\r\n`],
  ['bad escape', 400, 'GET /flux/%zz HTTP/1.1\r\n'],
  ['long path', 414, `GET /flux/${'a'.repeat(9_000)} HTTP/1.1\r\n`],
  ['bad request line', 400, 'BREW / HTTP/1.1\r\n'],
  ['large head', 431, `GET / HTTP/1.1\r\nX: ${'a'.repeat(20_000)}\r\n`],
  ['bad expectation', 400, 'GET / HTTP/1.1\r\nExpect: sugar\r\n'],
  ['bad coding', 400, `PUT /site/1 HTTP/1.1\r\n${OWN}${JSON_TYPE}Transfer-Encoding: x\r\n`],
  ['connect', 400, 'CONNECT a:1 HTTP/1.1\r\n'],
]

const HARDENED = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': /camera=\(\)/,
  'content-security-policy': /^default-src 'none'; .*frame-ancestors 'none'$/,
  'x-request-id': /^[0-9a-f]+-[0-9a-z]+$/,
  date: /GMT$/,
}

for (const scheme of ['http', 'https']) {
  const hsts = scheme === 'https' ? 'max-age=31536000' : undefined

  t.test(`every kind of response of an ${scheme} site carries each security header once`, async (t) => {
    const sandbox = await startSandbox(t)
    const port = String(await freePort())
    const bff = await startBff(t, sandbox, { PORT: port, PUBLIC_URL: `${scheme}://localhost:${port}` })
    const ids = new Set<string>()
    for (const [what, status, request] of KINDS) {
      const { answers } = await speak(
        portOf(bff),
        `${request}Host: ${new URL(bff.publicUrl).host}\r\nConnection: close\r\n\r\n`,
      )
      const [answer] = answers
      if (answer === undefined || answers.length > 1) {
        t.fail(`${what}: ${answers.length} answers`)
        continue
      }
      t.equal(answer.status, status, what)
      const fields = Object.fromEntries([...answer.headers.keys()].map((name) => [name, field(answer, name)]))
      t.match(fields, { ...HARDENED, 'strict-transport-security': hsts }, what)
      const odd = Object.keys(fields).filter((name) => /^(access-control-.*|server|x-powered-by)$/.test(name))
      t.strictSame(odd, [], what)
      ids.add(field(answer, 'x-request-id')!)
    }
    t.equal(ids.size, KINDS.length, 'no two requests share an id')

    const browser = bff.browser()
    await signIn(browser, sandbox)
    const { headers } = await browser.fetch('/flux/a')
    t.match(headers, { 'content-security-policy': /sandbox/, 'strict-transport-security': hsts }, 'relayed')
  })
}
