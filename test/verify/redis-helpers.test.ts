import { existsSync, readFileSync } from 'node:fs'
import t from 'tap'
import { startChild, waitForOutput } from '../helpers/child.ts'
import { startRedis } from '../helpers/redis.ts'
import { redisCommand } from '../helpers/redis-command.ts'
import { startCluster, startClusterOfOne, startSentinelGroup } from '../helpers/redis-groups.ts'
import { elapsed, until } from '../helpers/wait.ts'

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch {
    return false
  }
  // A zombie still takes signals.
  return !existsSync(`/proc/${pid}/stat`) || !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
}

t.test(
  'a private Redis answers, can be frozen and resumed, and keeps its port across a restart',
  async (t) => {
    const redis = await startRedis(t, { args: ['--appendonly', 'yes', '--appendfsync', 'always'] })
    t.equal(await redis.cli('ping'), 'PONG')
    await redis.cli('set', 'kept', 'yes')

    redis.pause()
    const answer = redis.cli('get', 'kept')
    const early = await Promise.race([answer, elapsed(150).then(() => 'nothing')])
    t.equal(early, 'nothing', 'a frozen Redis does not answer')
    redis.resume()
    t.equal(await answer, 'yes')

    const before = redis.pid
    await redis.kill()
    t.notOk(isAlive(before))
    await t.rejects(redis.cli('ping'), 'nothing listens')
    await redis.restart()
    t.not(redis.pid, before)
    t.equal(await redis.cli('get', 'kept'), 'yes')
  },
)

t.test(
  'a Redis with TLS and a password serves only clients that trust its certificate and send the password',
  async (t) => {
    const redis = await startRedis(t, { tls: true, password: 'p w' })
    t.equal(await redis.cli('ping'), 'PONG')
    const ca = readFileSync(redis.caFile!)
    const other = readFileSync((await startRedis(t, { tls: true })).caFile!)
    await t.rejects(redisCommand(redis.port, ['ping'], { ca }), /NOAUTH/)
    await t.rejects(redisCommand(redis.port, ['ping'], { ca: other, password: 'p w' }), /certificate/)
    await t.rejects(redisCommand(redis.port, ['ping'], { password: 'p w' }), 'it does not speak without TLS')
    t.match(redis.url, /^rediss:\/\/:p%20w@127\.0\.0\.1:\d+$/)
  },
)

t.test('an error reply of Redis is thrown', async (t) => {
  const redis = await startRedis(t)
  await t.rejects(redis.cli('get'), /wrong number of arguments/)
})

t.test('a sentinel group promotes the replica when the master dies', async (t) => {
  const group = await startSentinelGroup(t)
  t.equal(await group.masterPort(), group.master.port)
  await group.master.kill()
  await until('the replica is the master', async () => (await group.masterPort()) === group.replica.port)
})

t.test('a cluster spreads keys over its nodes', async (t) => {
  const cluster = await startCluster(t, { masters: 3 })
  for (const key of ['a', 'b', 'c', 'd']) t.equal(await cluster.cli('set', key, '1'), 'OK')
  const sizes = await Promise.all(cluster.nodes.map((node) => node.cli('dbsize')))
  t.equal(
    sizes.map(Number).reduce((sum, size) => sum + size),
    4,
  )
  t.ok(sizes.filter((size) => size !== '0').length > 1, `more than one node holds keys: ${sizes}`)
})

t.test(
  'processes that a test started end when the test process is killed, and its folder is removed',
  async (t) => {
    const script = `
    import { startRedis } from ${JSON.stringify(new URL('../helpers/redis.ts', import.meta.url).href)}
    const redis = await startRedis({ teardown() {} })
    console.log('PID ' + redis.pid + ' ' + (await redis.cli('config', 'get', 'dir')).split('\\n')[1])
    setInterval(() => {}, 1000)
  `
    const args = ['--import=tsx', '--input-type=module', '--eval', script]
    const victim = startChild(t, process.execPath, args, {
      env: { ...process.env } as Record<string, string>,
    })
    const found = await waitForOutput(victim, (text) => /PID (\d+) (\S+)/.exec(text))
    if (found === null) throw new Error(victim.output())
    const pid = Number(found[1])
    const folder = found[2] ?? ''
    t.ok(isAlive(pid))
    t.ok(existsSync(folder))

    await victim.stop('SIGKILL')
    await until('its process and its folder are gone', () => !isAlive(pid) && !existsSync(folder))
  },
)

t.test('a Cluster of one master takes writes once it has started', async (t) => {
  const redis = await startClusterOfOne(t)
  t.equal(await redis.cli('set', 'a', 'b'), 'OK')
})
