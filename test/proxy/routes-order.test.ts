import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { shared } from '../helpers/shared.ts'
import { cookieWithoutSession, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { ask, OWN, portOf, problemOf, type Question } from '../http/wire.ts'
import { type Header, JSON_TYPE } from './proxy-caller.ts'

const CROSS: Header = ['Sec-Fetch-Site', 'cross-site']
const SIGNED = cookieWithoutSession()
const IMAGE: Header = ['Accept', 'image/png']

const put = (target: string, headers: readonly Header[], body = 'x'.repeat(500)): Question => ({
  ...{ method: 'PUT', target, headers, body },
})

/** Requests with every later fault as well. The response names the first in the documented order. */
const LADDER: readonly (readonly [code: string, question: Question])[] = [
  ['not_found', put('/site/a/b/c?x=1', [CROSS])],
  ['method_not_allowed', { ...put('/site/!?x=1', [CROSS]), method: 'POST' }],
  ['cross_origin', put('/site/!?x=1', [CROSS])],
  ['login_required', put('/site/!?x=1', [OWN])],
  ['unsupported_media_type', put('/site/!', [OWN, SIGNED])],
  ['payload_too_large', put('/site/!', [OWN, SIGNED, JSON_TYPE])],
  ['invalid_request', put('/site/!', [OWN, SIGNED, JSON_TYPE], '{}')],
  ['invalid_request', put('/site/ACME/1?x=1', [OWN, SIGNED, JSON_TYPE], '{}')],
  ['invalid_request', put('/site/ACME/1', [OWN, SIGNED, JSON_TYPE], 'x')],
  ['invalid_request', put('/site/ACME/1', [OWN, SIGNED, JSON_TYPE], '{"a":1}')],
  ['invalid_request', put('/site/ACME/1', [OWN, SIGNED, JSON_TYPE], '{"siteID":2}')],
  ['login_required', put('/site/ACME/1', [OWN, SIGNED, JSON_TYPE], '{}')],
  ['cross_origin', { target: '/flux/!?callback=x', headers: [CROSS, IMAGE] }],
  ['invalid_request', { target: '/flux/ACME/!', headers: [OWN, IMAGE] }],
  ['invalid_request', { target: '/flux/ACME/a?callback=x', headers: [OWN, IMAGE] }],
  ['not_acceptable', { target: '/flux/ACME/a', headers: [OWN, IMAGE] }],
  ['login_required', { target: '/flux/ACME/a', headers: [OWN] }],
]

t.test('of several problems the first in the documented order is the response', async (t) => {
  const { sandbox, port } = await shared({ WAC_ALLOWED: 'DEMO', BODY_LIMIT_BYTES: '256' })
  for (const [code, question] of LADDER) {
    const what = `${question.method ?? 'GET'} ${question.target} ${question.body?.slice(0, 12) ?? ''}`
    t.match(problemOf(await ask(port, question)), { code }, what)
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('401 comes before 403 for the account, and 403 before 503 for the store', async (t) => {
  const sandbox = await startSandbox(t)
  const redis = await startRedis(t)
  const bff = await startBff(t, sandbox, {
    ...{ WAC_ALLOWED: 'DEMO', SESSION_CACHE_MS: '0', STORE_WAIT_MS: '0', REDIS_URL: redis.url },
    ...{ OAUTH_FLOWS: 'code,client', CLIENT_FLUX_ALLOWED: 'DEMO/open' },
  })
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
  t.equal((await bff.browser().fetch('/flux/open')).status, 200, 'nor where the application reads')
  t.equal(await code('/flux/DEMO/open', cookie), 'store_unavailable', 'a browser that may have a session')
  t.equal(await code('/flux/DEMO/!', cookie), 'invalid_request')
})
