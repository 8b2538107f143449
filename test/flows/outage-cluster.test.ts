import t, { type Test } from 'tap'
import type { Browser } from '../helpers/browser.ts'
import type { RedisServer } from '../helpers/redis.ts'
import { startCluster } from '../helpers/redis-groups.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed, until } from '../tokens/world.ts'

// Most of the time is spent waiting.
t.jobs = 2

const status = async (browser: Browser): Promise<number> => (await browser.fetch('/flux/a')).status

async function start(t: Test) {
  const cluster = await startCluster(t)
  for (const node of cluster.nodes)
    await node.cli('acl', 'setuser', 'app', 'on', '>app-password', '~*', '&*', '+@all')
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, {
    REDIS_URL: cluster.url.replace('://', '://app:app-password@'),
    STORE_OUTAGE_GRACE_SECONDS: '60',
  })
  await untilReady(bff)
  return { cluster, sandbox, bff }
}

t.test('a Cluster that takes our credentials no more is no store that is away', async (t) => {
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

t.test('credentials that a Cluster takes again are used, and its next outage is borne', async (t) => {
  const { cluster, sandbox, bff } = await start(t)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  t.equal(await status(browser), 200)
  await Promise.all(cluster.nodes.map((node) => node.cli('acl', 'deluser', 'app')))
  await until('it is refused', async () => (await status(browser)) === 503)
  for (const node of cluster.nodes)
    await node.cli('acl', 'setuser', 'app', 'on', '>app-password', '~*', '&*', '+@all')
  await untilReady(bff)
  for (let call = 0; call < 2; call += 1) t.equal(await status(browser), 200)
  await Promise.all(cluster.nodes.map((node) => node.kill()))
  for (let call = 0; call < 40; call += 1) {
    t.equal(await status(browser), 200)
    await elapsed(50)
  }
  t.match(bff.log(), /"event":"grace.begun"/)
})
