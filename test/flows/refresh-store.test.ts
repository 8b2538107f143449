import t from 'tap'
import { isProblem } from '../helpers/browser.ts'
import { presentations } from '../helpers/replicas.ts'
import { metricsOf } from '../helpers/system.ts'
import { elapsed, until, watchLateness } from '../helpers/wait.ts'
import { startHeldRefresh } from './load.ts'

t.jobs = 3

t.test('tokens that a dead Redis did not store are stored later, and not served before', async (t) => {
  const started = await startHeldRefresh(t, { STORE_WAIT_MS: '0' })
  const { redis, sandbox, replicas, browser, elsewhere, gate, waiting } = started
  await redis.kill()
  gate.release()
  t.equal((await waiting).status, 503, 'the session may have been ended elsewhere')
  t.equal((await browser.fetch('/flux/temperature')).status, 503)
  await until('retries are counted', async () =>
    /^bff_store_retries_total{step="tokens"} [1-9]/m.test(await metricsOf(replicas[0])),
  )
  t.match(await metricsOf(replicas[0]), /^bff_refresh_unsaved 1$/m)
  isProblem(t, await elsewhere.fetch('/flux/temperature'), 503, 'store_unavailable', 'elsewhere')
  await redis.restart()
  await until('the other replica', async () => (await elsewhere.fetch('/flux/temperature')).status === 200)
  t.equal(presentations(sandbox).length, 1)
  t.equal(sandbox.counters().reuseDetected, 0)
})

t.test('the replica that holds new tokens serves them while Redis refuses writes', async (t) => {
  const env = { TOKEN_TIMEOUT_MS: '1000' }
  const { redis, sandbox, browser, elsewhere, gate, waiting } = await startHeldRefresh(t, env)
  const endWatch = watchLateness()
  // Reads are answered all the while: as by a master that has lost its replicas, or with a full disk.
  await redis.cli('config', 'set', 'min-replicas-to-write', '1')
  gate.release()
  const { status } = await waiting
  const { longestMs } = endWatch()
  // A machine that was held up sees the tokens too late for the first call.
  t.ok(status === 200 || (status === 503 && longestMs > 500), `${status}, held up for ${longestMs} ms`)
  if (status !== 200)
    await until('they are served', async () => (await browser.fetch('/flux/temperature')).status === 200)
  // Longer than the lease.
  await elapsed(7_000)
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
  t.equal((await elsewhere.fetch('/flux/temperature')).status, 503)
  await redis.cli('config', 'set', 'min-replicas-to-write', '0')
  await until('the other replica', async () => {
    return (await elsewhere.fetch('/flux/temperature')).status === 200
  })
  t.equal(presentations(sandbox).length, 1)
  t.equal(sandbox.counters().reuseDetected, 0)
})

t.test('signing out while new tokens wait to be stored revokes them as well', async (t) => {
  const { redis, sandbox, browser, elsewhere, gate, waiting } = await startHeldRefresh(t)
  // Tokens cannot be written, and a record can be deleted.
  await redis.cli('acl', 'setuser', 'default', '-set', '(+set ~bff:e:*)', '(+set ~bff:ping*)')
  gate.release()
  t.equal((await waiting).status, 200)
  const out = await elsewhere.fetch('/auth/logout', { method: 'POST' })
  t.equal(out.status, 204)
  t.equal((await browser.fetch('/flux/temperature')).status, 401)
  const revoked = await sandbox.journal.until({ endpoint: 'revoke' }, 4)
  t.equal(new Set(revoked.map(({ form }) => form?.token)).size, 4)
})
