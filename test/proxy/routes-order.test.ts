import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { ask, field, OWN, portOf, problemOf, type Question } from '../http/wire.ts'

type Header = readonly [name: string, value: string]

const JSON_TYPE: Header = ['Content-Type', 'application/json']
const CROSS: Header = ['Sec-Fetch-Site', 'cross-site']

/** Requests with every later fault as well. The response names the first in the documented order. */
const LADDER: readonly (readonly [code: string, question: Question])[] = [
  ['not_found', { method: 'PUT', target: '/site/a/b/c?x=1', headers: [CROSS], body: 'x' }],
  ['method_not_allowed', { method: 'POST', target: '/site/!?x=1', headers: [CROSS], body: 'x' }],
  ['cross_origin', { method: 'PUT', target: '/site/!?x=1', headers: [CROSS], body: 'x'.repeat(500) }],
  ['invalid_request', { method: 'PUT', target: '/site/!', headers: [OWN], body: 'x'.repeat(500) }],
  ['invalid_request', { method: 'PUT', target: '/site/ACME/1?x=1', headers: [OWN], body: 'x'.repeat(500) }],
  [
    'unsupported_media_type',
    { method: 'PUT', target: '/site/ACME/1', headers: [OWN], body: 'x'.repeat(500) },
  ],
  [
    'payload_too_large',
    { method: 'PUT', target: '/site/ACME/1', headers: [OWN, JSON_TYPE], body: 'x'.repeat(500) },
  ],
  ['invalid_request', { method: 'PUT', target: '/site/ACME/1', headers: [OWN, JSON_TYPE], body: 'x' }],
  ['invalid_request', { method: 'PUT', target: '/site/ACME/1', headers: [OWN, JSON_TYPE], body: '{"a":1}' }],
  [
    'invalid_request',
    { method: 'PUT', target: '/site/ACME/1', headers: [OWN, JSON_TYPE], body: '{"siteID":2}' },
  ],
  ['login_required', { method: 'PUT', target: '/site/ACME/1', headers: [OWN, JSON_TYPE], body: '{}' }],
  ['cross_origin', { target: '/flux/!?callback=x', headers: [CROSS, ['Accept', 'image/png']] }],
  ['invalid_request', { target: '/flux/ACME/!', headers: [OWN, ['Accept', 'image/png']] }],
  ['invalid_request', { target: '/flux/ACME/a?callback=x', headers: [OWN, ['Accept', 'image/png']] }],
  ['not_acceptable', { target: '/flux/ACME/a', headers: [OWN, ['Accept', 'image/png']] }],
  ['login_required', { target: '/flux/ACME/a', headers: [OWN] }],
]

t.test('of several problems the first in the documented order is the response', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { WAC_ALLOWED: 'DEMO', BODY_LIMIT_BYTES: '256' })
  for (const [code, question] of LADDER) {
    const answer = await ask(portOf(bff), question)
    const what = `${question.method ?? 'GET'} ${question.target} ${question.body?.slice(0, 12) ?? ''}`
    t.match(problemOf(answer), { code }, what)
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('401 comes before 403 for the account, and 403 before 503 for the store', async (t) => {
  const sandbox = await startSandbox(t)
  const redis = await startRedis(t)
  const bff = await startBff(t, sandbox, { WAC_ALLOWED: 'DEMO', SESSION_CACHE_MS: '0', REDIS_URL: redis.url })
  await untilReady(bff)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const cookie: Header = ['Cookie', `session=${browser.cookies.get('session')!.value}`]
  const code = async (target: string, ...headers: Header[]) =>
    problemOf(await ask(portOf(bff), { target, headers: [OWN, ...headers] })).code
  t.equal(await code('/flux/ACME/a', cookie), 'wac_not_allowed')
  await redis.stop()
  t.equal(await code('/flux/ACME/a', cookie), 'wac_not_allowed', 'the store is down')
  t.equal(await code('/flux/DEMO/a', cookie), 'store_unavailable')
  t.equal(await code('/flux/DEMO/a'), 'login_required', 'and not asked without a cookie')
  t.equal(await code('/flux/DEMO/!', cookie), 'invalid_request')
})

t.test('no response under /flux and /site is a redirect', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const cookie: Header = ['Cookie', `session=${browser.cookies.get('session')!.value}`]
  for (const status of [300, 301, 302, 303, 307, 308]) {
    sandbox.faults.set({ resource: { mode: 'status', status, headers: { location: 'https://evil.test/' } } })
    for (const question of [
      { target: '/flux/a' },
      { method: 'PUT', target: '/site/1', body: '{}' },
      { method: 'POST', target: '/site', body: '{"siteID":1}' },
    ]) {
      const answer = await ask(portOf(bff), { ...question, headers: [OWN, JSON_TYPE, cookie] })
      t.equal(answer.status, 502, `${status} ${question.target}`)
      t.equal(field(answer, 'location'), undefined)
      t.match(problemOf(answer), { code: 'upstream_unavailable' })
    }
  }
  for (const target of ['/flux/a', '/flux', '/flux/', '/site', '/site/', '/site/1/', '/flux/a/']) {
    for (const method of ['GET', 'HEAD', 'PUT', 'POST']) {
      const { status } = await ask(portOf(bff), {
        method,
        target,
        headers: [OWN, ['Accept', 'text/html'], ['Sec-Fetch-Mode', 'navigate']],
      })
      t.ok(status < 300 || status >= 400, `${method} ${target}: ${status}`)
    }
  }
})

t.test('a page with a status that HTTP does not have is 502 and a problem', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.faults.set({
    resource: { mode: 'status', status: 999, headers: { 'content-type': 'text/html' }, body: '<p>no</p>' },
  })
  const answer = await browser.fetch('/flux/temperature')
  t.equal(answer.status, 502, answer.text)
  t.equal(answer.headers['content-type'], 'application/problem+json; charset=utf-8')
  t.equal(answer.json().code, 'upstream_unavailable')
})
