import t from 'tap'
import type { Browser } from '../helpers/browser.ts'
import type { RedisServer } from '../helpers/redis.ts'
import { startCluster } from '../helpers/redis-groups.ts'
import { lastBearer } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { sessionsOn } from './load.ts'

const status = async (browser: Browser): Promise<number> => (await browser.fetch('/flux/a')).status

t.test('with one Cluster node down, the sessions of the others are served and refreshed', async (t) => {
  const cluster = await startCluster(t)
  // What one node has lost is then no matter to the others.
  for (const node of cluster.nodes) await node.cli('config', 'set', 'cluster-require-full-coverage', 'no')
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: cluster.url, STORE_WAIT_MS: '0' })
  await untilReady(bff)
  const recordCounts = async () =>
    (await Promise.all(cluster.nodes.map(sessionsOn))).map((names) => names.length)
  const browsers = new Map<RedisServer, Browser[]>(cluster.nodes.map((node) => [node, []]))
  for (let each = 0; each < 8; each += 1) {
    const before = await recordCounts()
    const browser = bff.browser()
    await signIn(browser, sandbox)
    const after = await recordCounts()
    const owner = cluster.nodes[after.findIndex((count, node) => count > before[node]!)]!
    browsers.get(owner)!.push(browser)
    t.equal(await status(browser), 200)
  }
  const victim = cluster.nodes.find((node) => browsers.get(node)!.length > 0)!
  await victim.kill()
  // Each next call has to read its record, and to refresh its tokens.
  sandbox.expireAccessTokens()

  const [lost] = browsers.get(victim)!
  for (const browser of browsers.get(victim)!) t.equal(await status(browser), 503, 'nobody has it')
  for (const [node, others] of browsers) {
    if (node === victim) continue
    for (const browser of others) {
      const before = lastBearer(sandbox)
      t.equal(await status(lost!), 503, 'still nobody has it')
      t.equal(await status(browser), 200)
      t.not(lastBearer(sandbox), before, 'a token of its own, which was refreshed')
    }
  }
})
