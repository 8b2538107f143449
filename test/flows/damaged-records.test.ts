import { Redis } from 'ioredis'
import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { CLIENT, signIn, startBff, startSandbox } from '../helpers/system.ts'

t.test(
  'a record that is cut off at any length is an error for its session, and for nobody else',
  async (t) => {
    const redis = await startRedis(t)
    const sandbox = await startSandbox(t, { client: { ...CLIENT, callback: 'http://localhost/registered' } })
    const bff = await startBff(t, sandbox, {
      REDIS_URL: redis.url,
      SESSION_CACHE_MS: '0',
      STORE_WAIT_MS: '0',
    })
    const client = new Redis(redis.url)
    t.teardown(() => client.disconnect())
    const [damaged, other] = [bff.browser(), bff.browser()]
    await signIn(damaged, sandbox)
    const [key = ''] = await client.keys('bff:s:*')
    await signIn(other, sandbox)
    const whole = (await client.getBuffer(key))!
    const statuses = new Set<string>()
    for (let length = 1; length < whole.length; length += 1) {
      await client.set(key, whole.subarray(0, length), 'KEEPTTL')
      const call = await damaged.fetch('/flux/x')
      const session = await damaged.fetch('/auth/session')
      statuses.add(`${call.status} ${call.json().code} ${session.status}`)
    }
    t.strictSame([...statuses], ['503 store_unavailable 503', '401 login_required 200'])
    t.equal((await other.fetch('/flux/x')).status, 200)
    await client.set(key, whole, 'KEEPTTL')
    t.equal((await damaged.fetch('/flux/x')).status, 200, 'once the record is whole again')
    t.notMatch(bff.log(), /internal_error|"level":"fatal"/)
  },
)
