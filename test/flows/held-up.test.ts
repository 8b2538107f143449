import t from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { startRedis } from '../helpers/redis.ts'
import { startServer } from '../helpers/server-process.ts'
import { platformEnv, signIn, startSandbox } from '../helpers/system.ts'
import { elapsed } from '../helpers/wait.ts'

// Most of the time is spent waiting.
t.jobs = 3

for (const [what, redisToo] of [
  ['a server', false],
  ['a server and its Redis', true],
] as const) {
  t.test(`${what} frozen for four seconds under load answers every call with 200`, async (t) => {
    const redis = await startRedis(t)
    const sandbox = await startSandbox(t)
    const server = await startServer(t, {
      REDIS_URL: redis.url,
      SESSION_STORE: 'redis',
      ...platformEnv(sandbox),
    })
    const browsers = Array.from({ length: 4 }, () => createBrowser(server.publicUrl))
    for (const browser of browsers) await signIn(browser, sandbox)

    const statuses = new Map<string, number>()
    let calling = true
    const load = browsers.map(async (browser, at) => {
      while (calling) {
        // The second of the two asks Redis each time.
        const path = at % 2 === 0 ? '/flux/temperature' : '/auth/session'
        const { status } = await browser.fetch(path)
        statuses.set(`${status} ${path}`, (statuses.get(`${status} ${path}`) ?? 0) + 1)
        // Leaves some of the processor to other tests.
        await elapsed(50)
      }
    })
    await elapsed(500)
    if (redisToo) redis.pause()
    process.kill(server.pid, 'SIGSTOP')
    await elapsed(4_000)
    if (redisToo) redis.resume()
    process.kill(server.pid, 'SIGCONT')
    await elapsed(3_000)
    calling = false
    await Promise.all(load)
    t.strictSame([...statuses.keys()].sort(), ['200 /auth/session', '200 /flux/temperature'])
    t.notMatch(server.output(), /"event":"store.unreachable"/)
  })
}
