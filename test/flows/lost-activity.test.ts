import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed } from '../helpers/wait.ts'
import { startProxy } from '../store/proxy.ts'
import { scriptSha } from '../store/script-sha.ts'

const IDLE_MS = 6_000

t.test('a session whose activity write was lost with its connection is not idle', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const proxy = await startProxy(t, redis.port)
  const bff = await startBff(t, sandbox, {
    REDIS_URL: `redis://127.0.0.1:${proxy.port}`,
    SESSION_IDLE_SECONDS: String(IDLE_MS / 1_000),
  })
  await untilReady(bff)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  // Activity is noted once in a tenth of the idle limit; only Redis' first script of a kind goes out as text.
  await elapsed(IDLE_MS * 0.12)
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
  await elapsed(IDLE_MS * 0.7)
  proxy.cutAt(scriptSha('touch'), 1)
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
  await elapsed(IDLE_MS * 0.7)
  t.equal(proxy.cutsLeft(), 0, 'the note was lost')
  t.equal((await browser.fetch('/flux/temperature')).status, 200, 'used 4 s ago, with an idle limit of 6 s')
})
