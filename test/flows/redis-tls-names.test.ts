import t, { type Test } from 'tap'
import { checkRedis } from '../../operator/check-redis.ts'
import { configOf } from '../config/environment.ts'
import { type Certificate, createCertificate, expire } from '../helpers/certificate.ts'
import { logLines } from '../helpers/log-lines.ts'
import { startRedis } from '../helpers/redis.ts'
import { announcedByName, startClusterOfOne } from '../helpers/redis-groups.ts'
import { serves } from '../helpers/serves.ts'
import { type Bff, opsStatus, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { sessions } from '../operator/run.ts'

/** A Cluster of one master that announces itself by name, with a certificate for that name alone. */
async function startNamedCluster(t: Test) {
  const certificate = await createCertificate(makeFolder('certificate'), 'DNS:localhost')
  const redis = await startClusterOfOne(t, announcedByName({ tls: certificate }))
  return { caFile: certificate.caFile, url: `rediss-cluster://localhost:${redis.port}` }
}

/** Why the server says that it cannot reach Redis: one that is held up also says "timeout". */
function reasons({ log }: Bff): string {
  return logLines(log(), 'store.unreachable')
    .map(({ reason }) => reason)
    .join('\n')
}

async function isUsed(t: Test, env: Record<string, string>): Promise<void> {
  await serves(t, await startSandbox(t), env)
}

t.test('a Cluster over TLS whose certificate has a DNS name alone is used by that name', async (t) => {
  const cluster = await startNamedCluster(t)
  const env = { REDIS_URL: cluster.url, REDIS_CA_FILE: cluster.caFile }
  await isUsed(t, env)
  t.match(await sessions(t, env, 'count'), { code: 0, lines: ['1'], stderr: '' })
  const byAddress = { ...env, REDIS_URL: cluster.url.replace('localhost', '127.0.0.1') }
  const doubting = await startBff(t, await startSandbox(t), byAddress)
  await until('it says why', () => /does not match certificate's altnames/.test(reasons(doubting)))
})

t.test('a Redis that asks for a client certificate is used with one, and not without', async (t) => {
  const certificate = await createCertificate(makeFolder('certificate'))
  const redis = await startRedis(t, { tls: certificate, args: ['--tls-auth-clients', 'yes'] })
  const env = { REDIS_URL: redis.url, REDIS_CA_FILE: certificate.caFile }
  await isUsed(t, { ...env, REDIS_CERT_FILE: certificate.certFile, REDIS_KEY_FILE: certificate.keyFile })
  const without = await startBff(t, await startSandbox(t), env)
  await until('it says why', () => /certificate required|ECONNRESET/.test(reasons(without)))
  t.equal(await opsStatus(without), 503)
})

t.test('the server and the doctor say why the certificate of a Sentinel is not accepted', async (t) => {
  const isTold = async (expected: RegExp, names: string, change = async (_: Certificate) => {}) => {
    const certificate = await createCertificate(makeFolder('certificate'), names)
    await change(certificate)
    // The handshake fails before the first command, so that any TLS port of Redis does.
    const { port, caFile } = await startRedis(t, { tls: certificate })
    const env = { REDIS_URL: `rediss-sentinel://127.0.0.1:${port}/mymaster`, REDIS_CA_FILE: caFile! }
    const doubting = await startBff(t, await startSandbox(t), env)
    const { verdicts } = await checkRedis(configOf(env).store)
    t.match(verdicts, [{ check: 'Redis', verdict: 'fault', message: expected }])
    t.match(verdicts, [{ message: /host names in the certificate/ }])
    await until('the server says why', () => expected.test(reasons(doubting)))
  }
  await Promise.all([
    isTold(/does not match certificate's altnames/, 'DNS:redis.example'),
    isTold(/certificate has expired/, 'IP:127.0.0.1', expire),
  ])
})
