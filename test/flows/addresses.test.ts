import t, { type Test } from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { allowSlowAddresses } from '../../src/process/addresses.ts'
import { nameAddresses, startSilentAddress } from '../helpers/addresses.ts'
import { createCertificate } from '../helpers/certificate.ts'
import { startConnectProxy } from '../helpers/connect-proxy.ts'
import { freePort, portOfUrl } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { announcedByName, startClusterOfOne, startNamingSentinel } from '../helpers/redis-groups.ts'
import { serves } from '../helpers/serves.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { makeFolder } from '../helpers/watchdog.ts'

/** Nothing replies here. */
const DEAD = ['127.0.0.3', '127.0.0.4']
const MANY_DEAD = [...DEAD, '127.0.0.5', '127.0.0.6', '127.0.0.7']
const GOOD = '127.0.0.1'

/** The port is dead at these addresses. */
async function isDead(t: Test, port: number, hosts: readonly string[] = DEAD): Promise<void> {
  await Promise.all(hosts.map((host) => startSilentAddress(t, { host, port })))
}

const works = (t: Test, sandbox: Sandbox, env: Record<string, string>): Promise<void> =>
  serves(t, sandbox, { ALLOW_INSECURE_HTTP: 'true', ...env })

t.test('dead addresses of a name cost their attempts, never the call', async (t) => {
  allowSlowAddresses()
  nameAddresses(t, {
    'several.test': [...DEAD, GOOD],
    localhost: [...DEAD, GOOD],
    'many.test': [...MANY_DEAD, GOOD],
    'good.test': [GOOD],
  })
  const sandbox = await startSandbox(t)
  const at = (host: string, url: string) => {
    const { pathname } = new URL(url)
    return `http://${host}:${portOfUrl(url)}${pathname.replace(/\/$/, '')}`
  }

  await t.test('of the resource server and the token endpoint', async (t) => {
    await isDead(t, portOfUrl(sandbox.url), MANY_DEAD)
    await works(t, sandbox, {
      BASE_URL: at('several.test', sandbox.baseUrl),
      OAUTH_SCOPE: sandbox.baseUrl,
      OAUTH_TOKEN_URL: at('many.test', `${sandbox.authUrl}/oauth/token`),
    })
  })

  await t.test('of the egress proxy in front of the token endpoint', async (t) => {
    const proxy = await startConnectProxy(t)
    await isDead(t, proxy.port, MANY_DEAD)
    await works(t, sandbox, {
      HTTP_PROXY: `http://many.test:${proxy.port}`,
      NO_PROXY: 'good.test',
      BASE_URL: at('good.test', sandbox.baseUrl),
      OAUTH_SCOPE: sandbox.baseUrl,
    })
    t.ok(proxy.targets.length >= 1, 'which is used')
  })

  await t.test('of the egress proxy', async (t) => {
    const proxy = await startConnectProxy(t)
    await isDead(t, proxy.port)
    await works(t, sandbox, { HTTP_PROXY: `http://several.test:${proxy.port}` })
    t.ok(proxy.targets.length >= 3, 'which is used')
  })

  await t.test('of one Redis, here with TLS', async (t) => {
    const tls = await createCertificate(makeFolder('certificate'), 'DNS:several.test')
    const redis = await startRedis(t, { tls })
    await isDead(t, redis.port)
    await works(t, sandbox, {
      REDIS_URL: `rediss://several.test:${redis.port}`,
      REDIS_CA_FILE: tls.caFile,
    })
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
  nameAddresses(t, { 'far.test': ['127.0.0.2', DEAD[0]!] }, () => lookedUp())
  await startSilentAddress(t, { host: DEAD[0]!, port })
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
