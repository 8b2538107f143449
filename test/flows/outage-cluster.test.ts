import t, { type Test } from 'tap'
import type { Browser } from '../helpers/browser.ts'
import type { RedisServer } from '../helpers/redis.ts'
import { type RedisCluster, startCluster } from '../helpers/redis-groups.ts'
import { lastBearer, signInFor } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'

// Most of the time is spent waiting.
t.jobs = 3

const status = async (browser: Browser): Promise<number> => (await browser.fetch('/flux/a')).status

async function start(t: Test, env: Record<string, string> = {}) {
  const cluster = await startCluster(t)
  for (const node of cluster.nodes) {
    await node.cli('acl', 'setuser', 'app', 'on', '>app-password', '~*', '&*', '+@all')
    // What one node has lost is then no matter to the others.
    await node.cli('config', 'set', 'cluster-require-full-coverage', 'no')
  }
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, {
    REDIS_URL: cluster.url.replace('://', '://app:app-password@'),
    STORE_OUTAGE_GRACE_SECONDS: '60',
    ...env,
  })
  await untilReady(bff)
  return { cluster, sandbox, bff }
}

t.test('a Cluster that refuses the credentials does not count as unreachable', async (t) => {
  const refusals: Record<string, (node: RedisServer) => Promise<unknown>> = {
    'the user deleted': (node) => node.cli('acl', 'deluser', 'app'),
    'the password changed': async (node) => {
      await node.cli('acl', 'setuser', 'app', 'resetpass', '>another')
      await node.cli('client', 'kill', 'user', 'app')
    },
  }
  for (const [name, refuse] of Object.entries(refusals)) {
    const { cluster, sandbox, bff } = await start(t)
    const browser = bff.browser()
    await signIn(browser, sandbox)
    for (let call = 0; call < 2; call += 1) t.equal(await status(browser), 200)
    await Promise.all(cluster.nodes.map(refuse))
    await until(name, async () => (await status(browser)) === 503)
    for (let call = 0; call < 40; call += 1) {
      t.equal(await status(browser), 503, name)
      await elapsed(50)
    }
    t.equal((await fetch(`${bff.opsUrl}/readyz`)).status, 503, name)
  }
})

t.test(
  'credentials that a Cluster accepts again are used, and the grace covers its next outage',
  async (t) => {
    const { cluster, sandbox, bff } = await start(t)
    const browser = bff.browser()
    await signIn(browser, sandbox)
    t.equal(await status(browser), 200)
    await Promise.all(cluster.nodes.map((node) => node.cli('acl', 'deluser', 'app')))
    await until('it is refused', async () => (await status(browser)) === 503)
    for (const node of cluster.nodes)
      await node.cli('acl', 'setuser', 'app', 'on', '>app-password', '~*', '&*', '+@all')
    await untilReady(bff)
    // The client looks at the slots again every two seconds, and may find one more connection to make.
    for (let call = 0; call < 25; call += 1) {
      t.equal(await status(browser), 200)
      await elapsed(100)
    }
    await Promise.all(cluster.nodes.map((node) => node.kill()))
    for (let call = 0; call < 40; call += 1) {
      t.equal(await status(browser), 200)
      await elapsed(50)
    }
    t.match(bff.log(), /"event":"grace.begun"/)
  },
)

t.test('a Cluster with one node down is reachable: the other nodes are still asked', async (t) => {
  const lifeSeconds = 26
  const { cluster, sandbox, bff } = await start(t, { REFRESH_AHEAD_SECONDS: '0' })
  const begun = performance.now()
  const browsers = new Map<RedisServer, Browser[]>(cluster.nodes.map((node) => [node, []]))
  for (let each = 0; each < 8; each += 1) {
    const before = await recordsOn(cluster)
    const browser = await signInFor(bff, sandbox, lifeSeconds)
    const after = await recordsOn(cluster)
    const owner = cluster.nodes[after.findIndex((count, node) => count > before[node]!)]!
    browsers.get(owner)!.push(browser)
    t.equal(await status(browser), 200)
  }
  const known = performance.now()
  const victim = cluster.nodes.find((node) => browsers.get(node)!.length > 0)!
  await victim.kill()

  // From the last third of its life on a token is not used unless the store is away.
  await elapsed((lifeSeconds * 2_000) / 3 + 100 - (performance.now() - known))
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
  t.ok(performance.now() - begun < lifeSeconds * 1_000, 'no token had expired')
  t.notMatch(bff.log(), /grace\.begun/)
})

async function recordsOn(cluster: RedisCluster): Promise<number[]> {
  const names = await Promise.all(cluster.nodes.map((node) => node.cli('keys', 'bff:s:*')))
  return names.map((text) => text.split('\n').filter((name) => name !== '').length)
}
