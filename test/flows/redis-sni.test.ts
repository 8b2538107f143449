import { writeFileSync } from 'node:fs'
import net from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type Certificate, createCertificate } from '../helpers/certificate.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { startOnFreePort, startRedis } from '../helpers/redis.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'

/** In front of a TLS server that is set later: keeps whether each handshake names `localhost` (RFC 6066 section 3). */
async function startRelay(t: Test) {
  const named: boolean[] = []
  let target = 0
  const server = net.createServer((client) => {
    const upstream = net.connect(target, '127.0.0.1')
    // A ClientHello has the name in plain text, and no other field of it holds one.
    client.once('data', (hello) => named.push(hello.includes('localhost')))
    client.pipe(upstream).pipe(client)
    client.on('error', () => upstream.destroy())
    upstream.on('error', () => client.destroy())
  })
  return {
    port: await listenOnLoopback(t, server),
    named,
    leadTo(port: number): void {
      target = port
    },
  }
}

/** A server with this Redis signs a browser in and serves it. */
async function isUsed(t: Test, REDIS_URL: string, { caFile }: Certificate): Promise<void> {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { REDIS_URL, REDIS_CA_FILE: caFile })
  await untilReady(bff)
  t.equal((await signIn(bff.browser(), sandbox)).status, 303)
}

t.test('TLS to one Redis names the host, and no address', async (t) => {
  const certificate = await createCertificate(makeFolder('certificate'), 'DNS:localhost,IP:127.0.0.1')
  const redis = await startRedis(t, { tls: certificate })
  for (const host of ['localhost', '127.0.0.1']) {
    const relay = await startRelay(t)
    relay.leadTo(redis.port)
    await isUsed(t, `rediss://${host}:${relay.port}`, certificate)
    t.strictSame([...new Set(relay.named)], [host === 'localhost'], host)
  }
})

t.test('TLS to a Sentinel and to the master names the hosts', async (t) => {
  const certificate = await createCertificate(makeFolder('certificate'), 'DNS:localhost')
  const redis = await startRedis(t, { tls: certificate })
  const [toMaster, toSentinel] = [await startRelay(t), await startRelay(t)]
  toMaster.leadTo(redis.port)
  const folder = makeFolder('sentinel')
  const { keyFile, certFile, caFile } = certificate
  const sentinel = await startOnFreePort(t, (port) => {
    const file = join(folder, `${port}.conf`)
    const lines = [
      ...['port 0', `tls-port ${port}`, 'bind 127.0.0.1', `dir ${folder}`, 'tls-auth-clients no'],
      ...[`tls-cert-file ${certFile}`, `tls-key-file ${keyFile}`, `tls-ca-cert-file ${caFile}`],
      ...['tls-replication yes', 'sentinel resolve-hostnames yes', 'sentinel announce-hostnames yes'],
      `sentinel monitor mymaster localhost ${toMaster.port} 1`,
    ]
    writeFileSync(file, `${lines.join('\n')}\n`)
    return [file, '--sentinel']
  })
  toSentinel.leadTo(sentinel.port)
  await isUsed(t, `rediss-sentinel://localhost:${toSentinel.port}/mymaster`, certificate)
  t.strictSame([...new Set(toSentinel.named)], [true], 'the Sentinel')
  t.ok(toMaster.named.includes(true), 'the master, to which the Sentinel connects by itself too')
})

t.test('TLS to a node of a Cluster names the host that the node announces', async (t) => {
  const certificate = await createCertificate(makeFolder('certificate'), 'DNS:localhost')
  const [seed, announced] = [await startRelay(t), await startRelay(t)]
  const redis = await startRedis(t, {
    tls: certificate,
    cluster: true,
    args: [
      ...['--tls-cluster', 'yes', '--cluster-announce-tls-port', String(announced.port)],
      ...['--cluster-announce-hostname', 'localhost', '--cluster-preferred-endpoint-type', 'hostname'],
    ],
  })
  for (const relay of [seed, announced]) relay.leadTo(redis.port)
  await redis.cli('CLUSTER', 'ADDSLOTSRANGE', '0', '16383')
  await until('it serves all slots', async () =>
    (await redis.cli('CLUSTER', 'INFO')).includes('cluster_state:ok'),
  )
  await isUsed(t, `rediss-cluster://localhost:${seed.port}`, certificate)
  for (const { named } of [seed, announced]) t.strictSame([...new Set(named)], [true])
})
