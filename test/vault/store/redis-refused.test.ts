import t from 'tap'
import type { RedisTarget } from '../../../src/config/redis-url.ts'
import { Secret } from '../../../src/secret.ts'
import { StoreUnavailable } from '../../../src/vault/store/store.ts'
import { startRedis } from '../../helpers/redis.ts'
import { redisCommand } from '../../helpers/redis-command.ts'
import { startClusterOfOne } from '../../helpers/redis-groups.ts'
import { until } from '../../helpers/wait.ts'
import { clusterTarget, openRedisStore, redisStore, singleTarget, untilItWorks } from './stores.ts'

const PASSWORD = 'the right password'

/** The first messages that `onRefused` receives for a target. */
async function refusal(t: Parameters<typeof openRedisStore>[0], target: RedisTarget): Promise<string> {
  const messages: string[] = []
  const store = openRedisStore(t, target, { onRefused: (message) => void messages.push(message) })
  await until('the refusal is reported', () => messages.length > 0)
  await store.close()
  return messages.join('\n')
}

// The tests mostly wait, so they run concurrently.
t.jobs = 3

t.test('refused credentials are reported without the password', async (t) => {
  const redis = await startRedis(t, { password: PASSWORD })
  await redis.cli('acl', 'setuser', 'app', 'on', '>app-password', '~*', '&*', '+@all')
  const login = (username: string | null, password: string): RedisTarget => ({
    ...singleTarget(redis.port),
    login: { username, password: new Secret(password) },
  })
  const { port } = await startClusterOfOne(t, { password: PASSWORD })
  const refused: [RedisTarget, RegExp][] = [
    [singleTarget(redis.port), /NOAUTH/],
    [login(null, 'wrong-one'), /WRONGPASS/],
    [login('app', 'wrong-one'), /WRONGPASS/],
    [login('nobody', 'app-password'), /WRONGPASS/],
    [clusterTarget(port), /NOAUTH/],
    [clusterTarget(port, 'wrong-one'), /WRONGPASS/],
  ]
  for (const [target, expected] of refused) {
    const message = await refusal(t, target)
    t.match(message, expected)
    t.notMatch(message, /wrong-one|app-password/)
  }
  for (const target of [login(null, PASSWORD), login('app', 'app-password'), clusterTarget(port, PASSWORD)])
    await redisStore(t, target)
})

t.test('no other database is used in the place of one that the server has not', async (t) => {
  const redis = await startRedis(t, { args: ['--databases', '4'] })
  t.match(await refusal(t, singleTarget(redis.port, 4)), /^database 4 is refused: ERR DB index/)
  t.equal(await redis.cli('dbsize'), '0')
  await redisStore(t, singleTarget(redis.port, 3))
})

t.test('a server that has the database no longer after a restart is not used', async (t) => {
  const args = ['--databases', '6']
  const redis = await startRedis(t, { args })
  const unreachable: string[] = []
  const { store } = await redisStore(t, singleTarget(redis.port, 5), {
    onRefused: () => t.fail('the process ends at its start alone'),
    onUnreachable: (reason) => void unreachable.push(reason),
  })
  await redis.stop()
  args[1] = '4'
  await redis.restart()
  await until('it is refused', () => unreachable.some((reason) => reason.startsWith('database 5 is refused')))
  await t.rejects(store.ping(), StoreUnavailable)
  t.equal(await redis.cli('dbsize'), '0')
})

t.test('credentials that are refused after they were accepted count as an outage', async (t) => {
  const redis = await startRedis(t)
  const messages: string[] = []
  const { store } = await redisStore(t, singleTarget(redis.port), {
    onRefused: (message) => void messages.push(message),
  })
  await redis.cli('config', 'set', 'requirepass', PASSWORD)
  const cli = (...args: string[]) => redisCommand(redis.port, args, { password: PASSWORD })
  await cli('client', 'kill', 'type', 'normal', 'skipme', 'yes')
  await until('it was refused', async () => (await cli('info', 'errorstats')).includes('NOAUTH'))
  await t.rejects(store.ping(), StoreUnavailable)
  await cli('config', 'set', 'requirepass', '')
  await untilItWorks(store)
  t.strictSame(messages, [])
})
