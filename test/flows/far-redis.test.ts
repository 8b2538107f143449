import assert from 'node:assert/strict'
import net, { type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { createCertificate } from '../helpers/certificate.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { announcedByName, startClusterOfOne } from '../helpers/redis-groups.ts'
import { signInExpired } from '../helpers/replicas.ts'
import { startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { unlessHeldUp } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'

const ROUND_TRIP_MS = 400

/** In front of a server that is set later, as far away as this: the connection too takes a round trip. */
async function startDistance(t: Test) {
  let target = 0
  const carry = (from: Socket, to: Socket, firstMs: number): void => {
    let delayMs = firstMs + ROUND_TRIP_MS / 2
    const later = (act: () => void): void => void setTimeout(act, delayMs)
    from.on('data', (data) => later(() => to.write(data)))
    from.on('end', () => later(() => to.end()))
    from.on('error', () => to.destroy())
    from.setNoDelay()
    setTimeout(() => {
      delayMs = ROUND_TRIP_MS / 2
    }, firstMs)
  }
  const server = net.createServer((client) => {
    const upstream = net.connect(target, '127.0.0.1')
    carry(client, upstream, ROUND_TRIP_MS)
    carry(upstream, client, 0)
  })
  return {
    port: await listenOnLoopback(t, server),
    leadTo(port: number): void {
      target = port
    },
  }
}

/** The first sign-in, the first read, which refreshes, and the first sign-out. */
async function works(t: Test, env: Record<string, string>): Promise<void> {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, env)
  await untilReady(bff)
  // At such a distance a reply is late as soon as the machine is held up for a moment.
  await unlessHeldUp(50, async () => {
    const browser = await signInExpired(bff, sandbox)
    const read = await browser.fetch('/flux/temperature')
    assert.equal(read.status, 200, read.text)
    const signOut = await browser.fetch('/auth/logout', { method: 'POST' })
    assert.equal(signOut.status, 204, signOut.text)
  })
}

t.test('one Redis with TLS is used at a round trip of 400 ms', async (t) => {
  const certificate = await createCertificate(makeFolder('certificate'), 'DNS:localhost')
  const [redis, distance] = [await startRedis(t, { tls: certificate }), await startDistance(t)]
  distance.leadTo(redis.port)
  await works(t, { REDIS_URL: `rediss://localhost:${distance.port}`, REDIS_CA_FILE: certificate.caFile })
})

t.test('a Cluster with TLS is used at a round trip of 400 ms', async (t) => {
  const certificate = await createCertificate(makeFolder('certificate'), 'DNS:localhost')
  const distance = await startDistance(t)
  const redis = await startClusterOfOne(t, announcedByName({ tls: certificate, tlsPort: distance.port }))
  distance.leadTo(redis.port)
  await works(t, {
    REDIS_URL: `rediss-cluster://localhost:${distance.port}`,
    REDIS_CA_FILE: certificate.caFile,
  })
})
