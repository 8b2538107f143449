import t from 'tap'
import { type Teardown, waitForOutput } from '../helpers/child.ts'
import { accepts, freePort } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { runServer, SERVER_ENV, startBuilt } from '../helpers/server-process.ts'
import { elapsed, until } from '../helpers/wait.ts'

/** A server whose health checks can be asked, and whose public port may still be closed. */
async function beginStart(t: Teardown, redisUrl: string) {
  const [port, opsPort] = [await freePort(), await freePort()]
  const { SESSION_STORE: _, ...env } = SERVER_ENV
  const child = startBuilt(t, 'main.js', {
    ...env,
    REDIS_URL: redisUrl,
    PORT: String(port),
    OPS_PORT: String(opsPort),
    PUBLIC_URL: `http://localhost:${port}`,
  })
  await until('health checks', () => accepts(opsPort))
  return { url: `http://127.0.0.1:${port}`, child, isOpen: () => accepts(port) }
}

t.test('no call is refused because it came before the connection to Redis', async (t) => {
  const redis = await startRedis(t)
  redis.pause()
  const { url, child, isOpen } = await beginStart(t, redis.url)
  const healthyAt = Date.now()
  // A third of the second for which a start waits.
  await elapsed(333)
  redis.resume()
  await until('the public port is open', isOpen)
  const { status } = await fetch(`${url}/auth/session`)
  t.equal(status, 200, 'the first call finds the store')
  const line = await waitForOutput(child, (text) => /^.*"event":"listening".*\n/m.exec(text)?.[0] ?? null)
  const { time } = JSON.parse(line ?? '{}') as { time: string }
  // From the log: on a busy machine this test may look so late that the start no longer waits.
  t.ok(Date.parse(time) - healthyAt >= 300, 'the port is closed while Redis has not replied')
})

t.test('the port opens without Redis, whether it refuses connections or is silent', async (t) => {
  const redis = await startRedis(t)
  redis.pause()
  t.teardown(() => redis.resume())
  for (const redisUrl of [redis.url, `redis://127.0.0.1:${await freePort()}`]) {
    const { url, isOpen } = await beginStart(t, redisUrl)
    await until('the public port is open', isOpen)
    t.equal((await fetch(`${url}/auth/session`)).status, 503)
  }
})

t.test('a stop signal ends a start that waits for Redis', async (t) => {
  const redis = await startRedis(t)
  redis.pause()
  t.teardown(() => redis.resume())
  const { child } = await beginStart(t, redis.url)
  t.equal((await child.stop('SIGTERM')).code, 0)
})

t.test('credentials that the store refuses end the process, and are not printed', async (t) => {
  const redis = await startRedis(t, { password: 'right' })
  const ended = await runServer(t, {
    ...SERVER_ENV,
    PORT: '0',
    OPS_PORT: '0',
    PUBLIC_URL: 'http://localhost:3000',
    SESSION_STORE: undefined,
    REDIS_URL: redis.url.replace('right', 'wrong'),
  })
  t.equal(ended.code, 1)
  t.match(ended.stderr, /refused the credentials/)
  t.notMatch(ended.stderr, /wrong/)
})
