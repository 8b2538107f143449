import t, { type Test } from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { allowSlowAddresses } from '../../src/process/addresses.ts'
import { nameAddresses, startSilentAddress } from '../helpers/addresses.ts'
import { startConnectProxy } from '../helpers/connect-proxy.ts'
import { freePort, portOfUrl } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { announcedByName, startClusterOfOne, startNamingSentinel } from '../helpers/redis-groups.ts'
import { serves } from '../helpers/serves.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'

/** Nothing replies here. */
const DEAD = '127.0.0.3'
const GOOD = '127.0.0.1'

/** The port is dead at the first address of these names and good at the second one. */
async function isDead(t: Test, port: number): Promise<void> {
  await startSilentAddress(t, { host: DEAD, port })
}

const works = (t: Test, sandbox: Sandbox, env: Record<string, string>): Promise<void> =>
  serves(t, sandbox, { ALLOW_INSECURE_HTTP: 'true', ...env })

t.test('a dead address of a name costs its attempt, never the call', async (t) => {
  nameAddresses(t, { 'several.test': [DEAD, GOOD], localhost: [DEAD, GOOD] })
  const sandbox = await startSandbox(t)
  const at = (url: string, port = portOfUrl(url)) => {
    const { pathname } = new URL(url)
    return `http://several.test:${port}${pathname.replace(/\/$/, '')}`
  }

  await t.test('of the resource server and the token endpoint', async (t) => {
    await isDead(t, portOfUrl(sandbox.url))
    await works(t, sandbox, {
      BASE_URL: at(sandbox.baseUrl),
      OAUTH_SCOPE: sandbox.baseUrl,
      OAUTH_TOKEN_URL: at(`${sandbox.authUrl}/oauth/token`),
    })
  })

  await t.test('of the egress proxy', async (t) => {
    const proxy = await startConnectProxy(t)
    await isDead(t, proxy.port)
    await works(t, sandbox, { HTTP_PROXY: `http://several.test:${proxy.port}` })
    t.ok(proxy.targets.length >= 3, 'which is used')
  })

  await t.test('of one Redis', async (t) => {
    const redis = await startRedis(t)
    await isDead(t, redis.port)
    await works(t, sandbox, { REDIS_URL: `redis://several.test:${redis.port}` })
  })

  await t.test('of a Sentinel, and of the master that it names', async (t) => {
    const redis = await startRedis(t)
    const sentinel = await startNamingSentinel(t, { masterPort: redis.port })
    await isDead(t, redis.port)
    await isDead(t, sentinel.port)
    await works(t, sandbox, { REDIS_URL: `redis-sentinel://several.test:${sentinel.port}/mymaster` })
  })

  await t.test('of the nodes of a Cluster', async (t) => {
    const redis = await startClusterOfOne(t, announcedByName())
    await isDead(t, redis.port)
    await works(t, sandbox, { REDIS_URL: `redis-cluster://several.test:${redis.port}` })
  })
})

t.test('an address whose first packet is lost is reached although the last address is dead', async (t) => {
  allowSlowAddresses()
  const sandbox = await startSandbox(t)
  const port = await freePort()
  let lookedUp = (): void => {}
  nameAddresses(t, { 'far.test': ['127.0.0.2', DEAD] }, () => lookedUp())
  await startSilentAddress(t, { host: DEAD, port })
  const { pathname } = new URL(sandbox.baseUrl)
  const bff = await startBff(t, sandbox, {
    ALLOW_INSECURE_HTTP: 'true',
    BASE_URL: `http://far.test:${port}${pathname.replace(/\/$/, '')}`,
    OAUTH_SCOPE: sandbox.baseUrl,
    UPSTREAM_TIMEOUT_MS: '3000',
  })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const read = async (): Promise<number> => {
    const slow = await startSilentAddress(t, { host: '127.0.0.2', port }, portOfUrl(sandbox.url))
    // The first packet has been dropped by then.
    lookedUp = () => slow.open()
    const { status } = await browser.fetch('/flux/temperature')
    await slow.close()
    return status
  }
  // A stalled process may miss the reply that comes after a second.
  let status = await read()
  for (let tries = 1; status !== 200 && tries < 5; tries += 1) status = await read()
  t.equal(status, 200)
})
