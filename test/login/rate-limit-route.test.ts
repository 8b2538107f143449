import t from 'tap'
import { startBff, startSandbox } from '../helpers/system.ts'
import type { Question } from '../http/wire.ts'
import { ask, field, portOf, problemOf } from '../http/wire.ts'

t.test('a client that begins too many sign-ins in a minute is told when to come back', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t), { LOGIN_RATE_PER_MINUTE: '3' }))
  const start = (question: Question = {}) => ask(port, { target: '/auth/login', ...question })
  for (let i = 0; i < 3; i += 1) t.equal((await start()).status, 303)
  const answer = await start()
  t.equal(answer.status, 429)
  t.match(problemOf(answer), { code: 'rate_limited', status: 429 })
  const seconds = Number(field(answer, 'retry-after'))
  t.ok(seconds >= 1 && seconds <= 60, `${seconds} s`)
  t.notOk(answer.headers.has('set-cookie'))
  const page = await start({ headers: [['Sec-Fetch-Mode', 'navigate']] })
  t.equal(page.status, 429)
  t.match(field(page, 'content-type'), /^text\/html/)
  t.match(field(page, 'retry-after'), /^\d+$/)

  t.equal((await start({ target: '/auth/login?returnTo=//x' })).status, 429, 'before the query is looked at')
  t.equal((await start({ headers: [['Sec-Fetch-Mode', 'cors']] })).status, 403, 'after the origin')
  t.equal((await start({ method: 'POST' })).status, 405, 'after the method')
  t.equal((await ask(port, { target: '/auth/session' })).status, 200, 'other routes go on')
})

t.test('clients are counted apart, by the address that a trusted proxy names', async (t) => {
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
    'what the client wrote itself is nothing',
  )
  t.equal((await from(behind, '2001:db8:1:2:3::4')).status, 303)
  t.equal((await from(behind, '2001:db8:1:2:ffff::1')).status, 429, 'one household')
  t.equal((await from(behind, '2001:db8:1:3::4')).status, 303)

  const open = portOf(await startBff(t, sandbox, { LOGIN_RATE_PER_MINUTE: '1' }))
  t.equal((await from(open, '203.0.113.1')).status, 303)
  t.equal((await from(open, '203.0.113.2')).status, 429, 'nobody is believed without TRUST_PROXY')
})

t.test('0 is no limit', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t), { LOGIN_RATE_PER_MINUTE: '0' }))
  for (let i = 0; i < 50; i += 1) {
    const { status } = await ask(port, { target: '/auth/login' })
    if (status !== 303) t.equal(status, 303)
  }
  t.pass('50 at once')
})
