import assert from 'node:assert/strict'
import t from 'tap'
import { type Teardown, waitForOutput } from '../helpers/child.ts'
import { accepts, freePort } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { runServer, SERVER_ENV, startBuilt } from '../helpers/server-process.ts'
import { elapsed, unlessHeldUp, until } from '../helpers/wait.ts'

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
  // A start waits for a second: on a busy machine this test may resume Redis too late.
  await unlessHeldUp(100, async () => {
    redis.pause()
    const { url, child, isOpen } = await beginStart(t, redis.url)
    // A third of that second.
    await elapsed(333)
    const resumedAt = Date.now()
    redis.resume()
    await until('the public port is open', isOpen)
    const { status } = await fetch(`${url}/auth/session`)
    const line = await waitForOutput(child, (text) => /^.*"event":"listening".*\n/m.exec(text)?.[0] ?? null)
    const openedAt = Date.parse((JSON.parse(line ?? '{}') as { time: string }).time)
    await child.stop()
    assert.ok(openedAt >= resumedAt, 'the port is closed while Redis has not replied')
    assert.equal(status, 200, 'the first call finds the store')
  })
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
