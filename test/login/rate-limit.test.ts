import t from 'tap'
import { createRateLimit } from '../../src/login/rate-limit.ts'
import { shared } from '../helpers/shared.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { ask, field, portOf, problemOf, type Question } from '../http/wire.ts'

t.test('the limit counts each client by itself and names the seconds to wait', async (t) => {
  let at = 1_000_000
  const count = createRateLimit({ perMinute: 3, clock: { monotonic: () => at } })
  for (let attempt = 0; attempt < 3; attempt += 1) count('192.0.2.1')
  at += 20_000
  t.throws(() => count('192.0.2.1'), { code: 'rate_limited', status: 429, headers: { 'retry-after': '40' } })
  t.doesNotThrow(() => count('192.0.2.2'), 'another client is not held back')
  at += 40_000
  t.doesNotThrow(() => count('192.0.2.1'), 'a new minute')
})

t.test('perMinute 0, as of LOGIN_RATE_PER_MINUTE=0, sets no limit', async (t) => {
  const count = createRateLimit({ perMinute: 0, clock: { monotonic: () => 0 } })
  for (let attempt = 0; attempt < 1_000; attempt += 1) count('192.0.2.1')
  const { port } = await shared({ LOGIN_RATE_PER_MINUTE: '0' })
  t.equal((await ask(port, { target: '/auth/login' })).status, 303)
})

t.test(
  'of more than 50,000 clients a minute the limit forgets those that tried least recently',
  async (t) => {
    const count = createRateLimit({ perMinute: 1, clock: { monotonic: () => 0 } })
    for (const name of ['idle', 'busy']) count(name)
    for (let client = 0; client < 50_000; client += 1) {
      count(`client ${client}`)
      if (client % 10_000 === 0) t.throws(() => count('busy'), { code: 'rate_limited' })
    }
    t.throws(() => count('busy'), { code: 'rate_limited' })
    t.doesNotThrow(() => count('idle'))
  },
)

t.test('too many sign-ins in a minute get 429 with Retry-After', async (t) => {
  const bff = await startBff(t, await startSandbox(t), { LOGIN_RATE_PER_MINUTE: '3' })
  const port = portOf(bff)
  const start = (question: Question = {}) => ask(port, { target: '/auth/login', ...question })
  for (let i = 0; i < 3; i += 1) t.equal((await start()).status, 303)
  const answer = await start()
  t.match(problemOf(answer), { code: 'rate_limited', status: 429 })
  const seconds = Number(field(answer, 'retry-after'))
  t.ok(seconds >= 1 && seconds <= 60, `${seconds} s`)
  t.notOk(answer.headers.has('set-cookie'))
  t.match(
    bff.log(),
    'too many sign-ins from one address: if they are those of many users, raise LOGIN_RATE_PER_MINUTE',
  )

  t.equal((await start({ target: '/auth/login?returnTo=//x' })).status, 429, 'before the query is looked at')
  t.equal((await start({ headers: [['Sec-Fetch-Mode', 'cors']] })).status, 403, 'after the origin')
  t.equal((await start({ method: 'POST' })).status, 405, 'after the method')
  t.equal((await ask(port, { target: '/auth/session' })).status, 200, 'other routes are not limited')
})

t.test('clients are counted by the address that a trusted proxy names', async (t) => {
  const sandbox = await startSandbox(t)
  const from = (port: number, address: string) =>
    ask(port, { target: '/auth/login', headers: [['X-Forwarded-For', address]] })
  const behind = portOf(await startBff(t, sandbox, { LOGIN_RATE_PER_MINUTE: '1', TRUST_PROXY: '127.0.0.1' }))
  t.equal((await from(behind, '203.0.113.1')).status, 303)
  t.equal((await from(behind, '203.0.113.2')).status, 303)
  t.equal((await from(behind, '203.0.113.1')).status, 429)
  t.equal(
    (await from(behind, '198.51.100.9, 203.0.113.1')).status,
    429,
    'the entry that the client wrote is ignored',
  )
  t.equal((await from(behind, '2001:db8:1:2:3::4')).status, 303)
  t.equal((await from(behind, '2001:db8:1:2:ffff::1')).status, 429, 'one household')
  t.equal((await from(behind, '2001:db8:1:3::4')).status, 303)

  const open = portOf(await startBff(t, sandbox, { LOGIN_RATE_PER_MINUTE: '1' }))
  t.equal((await from(open, '203.0.113.1')).status, 303)
  t.equal((await from(open, '203.0.113.2')).status, 429, 'without TRUST_PROXY the header is ignored')
})
