import t from 'tap'
import { createServer } from '../../src/http/server.ts'
import { createLog } from '../../src/log.ts'
import { SESSION_SCHEMA, SHARED_SCHEMAS, STAY_SCHEMA } from '../../src/login/session-info.ts'
import { configOf } from '../config/environment.ts'
import { offsetWallClock } from '../helpers/clock.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { storedRecord } from '../helpers/stored-record.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed, watchLateness } from '../helpers/wait.ts'
import { ask, OWN, portOf, problemOf } from '../http/wire.ts'
import { signedInOverRedis } from './sign-ins.ts'

const A = 'secret-A-of-the-tests-of-at-least-32-characters'
const B = 'secret-B-of-the-tests-of-at-least-32-characters'
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
const TIMES = ['createdAt', 'idleExpiresAt', 'expiresAt', 'accessTokenExpiresAt', 'now']
const ANONYMOUS = { authenticated: false, loginUrl: '/auth/login' }

t.test('GET /auth/session describes a session, and never sends a token', async (t) => {
  const { sandbox, bff } = await shared({ SESSION_IDLE_SECONDS: '600', SESSION_MAX_SECONDS: '1200' })
  const browser = bff.browser()
  const begin = Date.now()
  await signIn(browser, sandbox)
  const answer = await browser.fetch('/auth/session')
  t.equal(answer.status, 200)
  t.match(answer.headers['content-type'], /^application\/json/)
  t.equal(answer.headers['cache-control'], 'no-store')
  t.strictSame(answer.setCookies, [])
  const session = answer.json()
  const { sessionId, ...rest } = session
  const facts = {
    authenticated: true,
    flow: 'code',
    refreshable: true,
    wac: 'DEMO',
    user: null,
    bound: false,
  }
  t.strictSame(Object.keys(rest).sort(), [...Object.keys(facts), ...TIMES].sort())
  t.match(rest, facts)
  for (const name of TIMES) t.match(rest[name], ISO, name)
  const at = (name: string): number => Date.parse(String(session[name]))
  t.ok(at('createdAt') >= begin && at('createdAt') <= Date.now())
  t.equal(at('idleExpiresAt') - at('createdAt'), 600_000)
  t.equal(at('expiresAt') - at('createdAt'), 1_200_000)
  const expiresAt = at('accessTokenExpiresAt') - 3_600_000
  t.ok(expiresAt >= begin && expiresAt <= Date.now())
  t.ok(at('now') >= at('createdAt') && at('now') <= Date.now())
  t.match(sessionId, /^[0-9a-f]{12}$/)
  t.match(bff.log(), `"recordKey":"${sessionId}"`, 'the log names the session in the same way')
  const calls = sandbox.journal.entries({ endpoint: 'resource' })
  t.equal(calls.length, 0, 'reading the session does not call the resource server')
  const without = (await signedIn({ WAC: '' })).browser
  t.equal((await without.fetch('/auth/session')).json().wac, null, 'without a default account')
})

t.test('a member that the schema of the session does not name is not sent', async (t) => {
  const server = createServer(configOf({}), createLog('silent'))
  t.teardown(() => server.close())
  for (const schema of SHARED_SCHEMAS) server.addSchema(schema)
  const facts = {
    ...{ authenticated: true, flow: 'code', refreshable: true, wac: null, user: null },
    ...Object.fromEntries(TIMES.map((name) => [name, '2026-01-01T00:00:00.000Z'])),
    sessionId: '0'.repeat(12),
    bound: false,
  }
  for (const [url, schema] of [
    ['/one', SESSION_SCHEMA],
    ['/two', STAY_SCHEMA],
  ] as const) {
    server.get(url, { schema }, async () => ({ ...facts, accessToken: 'planted', refreshToken: 'planted' }))
  }
  for (const url of ['/one', '/two']) t.strictSame((await server.inject(url)).json(), facts, url)
})

t.test('GET /auth/session does not extend the session', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { SESSION_IDLE_SECONDS: '600' })
  const setClock = offsetWallClock(t)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const { idleExpiresAt } = (await browser.fetch('/auth/session')).json()
  for (const seconds of [100, 200, 300, 400, 500]) {
    setClock(seconds * 1_000)
    const answer = (await browser.fetch('/auth/session')).json()
    t.match(answer, { authenticated: true, idleExpiresAt }, `after ${seconds} s`)
  }
  setClock(600_000)
  const ended = { reason: 'idle', at: idleExpiresAt }
  for (let tab = 0; tab < 3; tab += 1) {
    const answer = await browser.fetch('/auth/session')
    t.strictSame(answer.json(), { ...ANONYMOUS, ended }, 'every tab and every later call learns the reason')
    t.strictSame(answer.setCookies, [], 'reading the reason clears no cookie')
  }
})

t.test('a call with X-Activity: none is served and does not extend the session', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { SESSION_IDLE_SECONDS: '600', SESSION_CACHE_MS: '0' })
  const setClock = offsetWallClock(t)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const { idleExpiresAt } = (await browser.fetch('/auth/session')).json()
  const poll = () => browser.fetch('/flux/a', { headers: { 'x-activity': 'none' } })
  for (const seconds of [100, 200, 300, 400, 500]) {
    setClock(seconds * 1_000)
    t.equal((await poll()).status, 200, `after ${seconds} s`)
  }
  setClock(600_000)
  t.match((await poll()).json(), { code: 'login_required', reason: 'idle' })
  t.strictSame((await browser.fetch('/auth/session')).json().ended, { reason: 'idle', at: idleExpiresAt })
})

t.test('POST /auth/session moves the idle limit and never the absolute one', async (t) => {
  const { browser } = await signedInOverRedis(t, { SESSION_IDLE_SECONDS: '60', SESSION_MAX_SECONDS: '61' })
  const [signedInAt, endWatch] = [Date.now(), watchLateness()]
  const before = (await browser.fetch('/auth/session')).json()
  await elapsed(300)
  const askedAt = Date.now()
  const answer = await browser.fetch('/auth/session', { method: 'POST' })
  const answeredAt = Date.now()
  t.equal(answer.status, 200)
  const after = answer.json()
  t.strictSame(Object.keys(after), Object.keys(before))
  const moved = Date.parse(String(after.idleExpiresAt)) - Date.parse(String(before.idleExpiresAt))
  // The clocks of the server and of Redis round. The time of a step goes on from the last reply, which a process that was held up
  // has read late.
  const [least, most] = [
    askedAt - signedInAt - 5 - endWatch().lateMs,
    answeredAt - Date.parse(String(before.createdAt)) + 5,
  ]
  t.ok(moved >= least && moved <= most, `the idle limit moves by ${moved} ms, ${least} to ${most} expected`)
  t.equal(after.expiresAt, before.expiresAt)
  const { idleExpiresAt } = (await browser.fetch('/auth/session')).json()
  t.equal(idleExpiresAt, after.idleExpiresAt, 'GET shows the same')
  await elapsed(900)
  const late = (await browser.fetch('/auth/session', { method: 'POST' })).json()
  t.equal(late.idleExpiresAt, before.expiresAt, 'the idle limit is never after the absolute one')
})

t.test('POST /auth/session needs a session and accepts any body', async (t) => {
  const { browser, bff } = await signedIn()
  const refused = await bff.browser().fetch('/auth/session', { method: 'POST' })
  t.match(refused.json(), { status: 401, code: 'login_required', loginUrl: '/auth/login', reason: undefined })
  t.strictSame(refused.setCookies, [])
  for (const [type, body] of [
    ['application/json', '{"a":'],
    ['application/json', ''],
    ['text/plain', 'x'],
    ['application/json', `"${'x'.repeat(200_000)}"`],
  ] as const) {
    const headers = { 'content-type': type }
    t.equal((await browser.fetch('/auth/session', { method: 'POST', body, headers })).status, 200, type)
  }
})

t.test('a cookie signed with an older secret is set again once under the newest', async (t) => {
  const { sandbox, redis, bff, browser } = await signedInOverRedis(t, { SESSION_SECRET: A })
  const signedByA = browser.cookies.get('session')!.value
  const env = { REDIS_URL: redis.url, PUBLIC_URL: bff.publicUrl, SESSION_SECRET: `${B},${A}` }
  const both = await startBff(t, sandbox, env)
  await untilReady(both)
  const port = portOf(both)
  const get = (target: string, session: string) =>
    ask(port, { target, headers: [OWN, ['Cookie', `session=${session}`]] })

  t.equal((await get('/flux/a', signedByA)).status, 200, 'it works without being set again')
  const renewed = await get('/auth/session', signedByA)
  t.match(problemOf(renewed), { authenticated: true })
  const [record, session = '', ...more] = [...(renewed.headers.get('set-cookie') ?? [])].sort()
  t.strictSame(more, [])
  t.match(record, /^record=.*; Path=\/; HttpOnly; SameSite=Lax$/)
  t.match(session, /^session=.*; Path=\/; HttpOnly; SameSite=Strict$/)
  const signedByB = /^session=([^;]*)/.exec(session)![1]!
  t.equal(signedByB.split('.')[0], signedByA.split('.')[0], 'it is the same session')
  t.not(signedByB, signedByA)
  const again = await get('/auth/session', signedByB)
  t.notOk(again.headers.has('set-cookie'), 'and is not set again')
})

t.test('staying signed in waits until Redis has recorded it, and is 503 if Redis does not', async (t) => {
  const { redis, browser } = await signedInOverRedis(t)
  const seenAt = async (): Promise<number | undefined> => {
    const [record] = (await redis.cli('keys', 'bff:s:*')).split('\n')
    return (await storedRecord(redis, record!))?.seenAt
  }
  const before = await seenAt()
  await redis.cli('config', 'set', 'maxmemory', '1')
  const refused = await browser.fetch('/auth/session', { method: 'POST' })
  t.equal(refused.status, 503)
  t.match(refused.json(), { code: 'store_unavailable' })
  await redis.cli('config', 'set', 'maxmemory', '0')
  t.equal(await seenAt(), before)
  t.equal((await browser.fetch('/auth/session', { method: 'POST' })).status, 200)
  t.not(await seenAt(), before)
})
