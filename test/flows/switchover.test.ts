import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { through } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { startProxy } from '../helpers/tcp-proxy.ts'
import { until } from '../helpers/wait.ts'

t.test('a replica follows one address of Redis from a demoted server to the new master', async (t) => {
  const old = await startRedis(t)
  const next = await startRedis(t, { args: ['--replicaof', `127.0.0.1 ${old.port}`] })
  await until('it replicates', async () => (await old.cli('info', 'replication')).includes('state=online'))
  const address = await startProxy(t, old.port)
  const sandbox = await startSandbox(t)
  const env = { REDIS_URL: `redis://127.0.0.1:${address.port}` }
  const one = await startBff(t, sandbox, env)
  await untilReady(one)
  const [stays, leaves] = [one.browser(), one.browser()]
  await signIn(stays, sandbox)
  await signIn(leaves, sandbox)
  await until('both are replicated', async () => (await next.cli('keys', 'bff:s:*')).split('\n').length === 2)

  // As operators do it by hand: no connection to the old master ends.
  await next.cli('replicaof', 'no', 'one')
  address.turnTo(next.port)
  await old.cli('replicaof', '127.0.0.1', String(next.port))
  const signOut = async (): Promise<boolean> =>
    (await leaves.fetch('/auth/logout', { method: 'POST' })).status === 204
  await until('it writes again', signOut)
  await untilReady(one)
  t.equal((await stays.fetch('/flux/temperature')).status, 200)

  // The old server is taken out of the group, and shows for ever what it had.
  await old.cli('replicaof', '127.0.0.1', '1')
  const other = await startBff(t, sandbox, env)
  await untilReady(other)
  t.equal((await through(other, stays).fetch('/auth/logout', { method: 'POST' })).status, 204)
  await until('the end is seen', async () => (await stays.fetch('/flux/temperature')).status === 401)
})
