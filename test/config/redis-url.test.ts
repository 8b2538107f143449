import t from 'tap'
import { Refused } from '../../src/config/kinds.ts'
import { describeTarget, REDIS_TARGET, type RedisTarget } from '../../src/config/redis-url.ts'

const NO_LOGIN = { username: null, password: null }

function read(text: string): Record<string, unknown> {
  const target = REDIS_TARGET.read(text)
  if (target instanceof Refused) throw new Error(target.fault)
  const { username, password } = target.login
  return { ...target, login: { username, password: password?.reveal() ?? null } }
}

t.test('redis:// names one server; the defaults are 6379, database 0 and no login', async (t) => {
  const single = {
    kind: 'single',
    address: { host: 'redis', port: 6379 },
    db: 0,
    login: NO_LOGIN,
    tls: false,
  }
  t.strictSame(read('redis://redis'), single)
  t.strictSame(read('redis://redis/'), single)
  t.strictSame(read('REDIS://redis:6379/0'), single)
  t.strictSame(read('rediss://redis_1:7000/12'), {
    ...single,
    address: { host: 'redis_1', port: 7000 },
    db: 12,
    tls: true,
  })
  t.strictSame(read('redis://[2001:db8::1]:7000').address, { host: '2001:db8::1', port: 7000 })
  t.strictSame(read('redis://[::1]').address, { host: '::1', port: 6379 })
})

t.test('credentials are percent-decoded, with or without a user name', async (t) => {
  const login = (userinfo: string) => read(`redis://${userinfo}@redis`).login
  t.strictSame(login('app:p%40s%2Fs%3A%25'), { username: 'app', password: 'p@s/s:%' })
  t.strictSame(login(':pass'), { username: null, password: 'pass' })
  t.strictSame(login('a%3Ab:c:d'), { username: 'a:b', password: 'c:d' })
  t.strictSame(login('app:p@ss'), { username: 'app', password: 'p@ss' })
})

t.test('redis-sentinel:// names the Sentinels, the master and an optional database', async (t) => {
  t.strictSame(read('redis-sentinel://app:pass@one,[::1]:5000,three:26380/main/2'), {
    kind: 'sentinel',
    sentinels: [
      { host: 'one', port: 26379 },
      { host: '::1', port: 5000 },
      { host: 'three', port: 26380 },
    ],
    master: 'main',
    db: 2,
    login: { username: 'app', password: 'pass' },
    sentinelPassword: null,
    tls: false,
  })
  t.match(read('rediss-sentinel://one/main'), { master: 'main', db: 0, tls: true })
})

t.test('redis-cluster:// names nodes, and has no database number', async (t) => {
  t.strictSame(read('redis-cluster://:pass@one,two:7001'), {
    kind: 'cluster',
    nodes: [
      { host: 'one', port: 6379 },
      { host: 'two', port: 7001 },
    ],
    login: { username: null, password: 'pass' },
    tls: false,
  })
  t.match(read('rediss-cluster://one/'), { kind: 'cluster', tls: true })
})

t.test('a target is described without its credentials', async (t) => {
  for (const [url, text] of Object.entries({
    'redis://:the-word@redis/3': 'Redis at redis:6379, database 3',
    'redis-sentinel://user:the-word@one,two:26380/shop/2':
      'Redis behind Sentinel at one:26379, two:26380, master shop, database 2',
    'rediss-cluster://user:the-word@[::1]:7000,two': 'Redis Cluster at [::1]:7000, two:6379',
  }))
    t.equal(describeTarget(REDIS_TARGET.read(url) as RedisTarget), text)
})

t.test('an ambiguous or malformed URL is refused', async (t) => {
  const cases: [says: RegExp, ...urls: string[]][] = [
    [/must begin with/, 'http://redis', 'redis:redis', 'redis-cluster:/one', 'redis+sentinel://one/main'],
    [/number 1/, 'redis://', 'redis:///0', 'redis://redis:0', 'redis://redis:65536', 'redis://redis:port'],
    [/number 1/, 'redis://::1', 'redis://[redis]', 'redis://[fe80::1%25eth0]'],
    [/number 2/, 'redis-sentinel://one,,two/main', 'redis-cluster://one,two:'],
    [/one host/, 'redis://one,two'],
    [/database number/, 'redis://redis/zero', 'redis://redis/-1', 'redis://redis/0/1'],
    [/database number/, 'redis-sentinel://one/main/x'],
    [/only database 0/, 'redis-cluster://one,two/0'],
    [/no query/, 'redis://redis?db=1', 'redis://redis#1'],
    [/space/, 'redis://redis /0'],
    [/user name without a password/, 'redis://app@redis', 'redis://app:@redis'],
    [/percent-encoding/, 'redis://:%zz@redis'],
    [/percent-encode/, 'redis://:pa/ss@redis'],
    [/master's name/, 'redis-sentinel://one', 'redis-sentinel://one/', 'redis-sentinel://one//0'],
    [/master's name/, 'redis-sentinel://one/a%20b'],
    [/\/MASTER/, 'redis-sentinel://one/main/0/1'],
  ]
  for (const [says, ...urls] of cases) {
    for (const url of urls) {
      const target = REDIS_TARGET.read(url)
      if (!(target instanceof Refused)) t.fail(`${url} is accepted`)
      else t.match(target.fault, says, url)
    }
  }
})
