import t, { type Test } from 'tap'
import { type Certificate, createCertificate } from '../helpers/certificate.ts'
import { startRedis } from '../helpers/redis.ts'
import { announcedByName, startClusterOfOne, startNamingSentinel } from '../helpers/redis-groups.ts'
import { serves } from '../helpers/serves.ts'
import { startSandbox } from '../helpers/system.ts'
import { startProxy, type TcpProxy } from '../helpers/tcp-proxy.ts'
import { makeFolder } from '../helpers/watchdog.ts'

/**
 * Whether the handshakes through a proxy name `localhost` (RFC 6066 section 3). A ClientHello has the name in plain text, and
 * no other field of it holds one.
 */
const named = (proxy: TcpProxy): boolean[] => [
  ...new Set(proxy.openings().map((hello) => hello.includes('localhost'))),
]

async function isUsed(t: Test, REDIS_URL: string, { caFile }: Certificate): Promise<void> {
  await serves(t, await startSandbox(t), { REDIS_URL, REDIS_CA_FILE: caFile })
}

t.test('TLS to one Redis names the host, and no address', async (t) => {
  const certificate = await createCertificate(makeFolder('certificate'), 'DNS:localhost,IP:127.0.0.1')
  const redis = await startRedis(t, { tls: certificate })
  for (const host of ['localhost', '127.0.0.1']) {
    const relay = await startProxy(t, redis.port)
    await isUsed(t, `rediss://${host}:${relay.port}`, certificate)
    t.strictSame(named(relay), [host === 'localhost'], host)
  }
})

t.test('TLS to a Sentinel and to the master names the hosts', async (t) => {
  const certificate = await createCertificate(makeFolder('certificate'), 'DNS:localhost')
  const redis = await startRedis(t, { tls: certificate })
  const toMaster = await startProxy(t, redis.port)
  const sentinel = await startNamingSentinel(t, { masterPort: toMaster.port, tls: certificate })
  const toSentinel = await startProxy(t, sentinel.port)
  await isUsed(t, `rediss-sentinel://localhost:${toSentinel.port}/mymaster`, certificate)
  t.strictSame(named(toSentinel), [true], 'the Sentinel')
  t.ok(named(toMaster).includes(true), 'the master, to which the Sentinel connects by itself too')
})

t.test('TLS to a node of a Cluster names the host that the node announces', async (t) => {
  const certificate = await createCertificate(makeFolder('certificate'), 'DNS:localhost')
  const announced = await startProxy(t, 0)
  const redis = await startClusterOfOne(t, announcedByName({ tls: certificate, tlsPort: announced.port }))
  announced.turnTo(redis.port)
  const seed = await startProxy(t, redis.port)
  await isUsed(t, `rediss-cluster://localhost:${seed.port}`, certificate)
  for (const relay of [seed, announced]) t.strictSame(named(relay), [true])
})
