import { Cluster } from 'ioredis'
import t from 'tap'
import { inTime } from '../../../src/vault/store/redis/command-timeout.ts'
import { freePort } from '../../helpers/ports.ts'
import { elapsed, until } from '../../helpers/wait.ts'
import { installVirtualTime } from '../refresh/virtual-time.ts'
import { clusterTarget, ONE_SERVER, openCommands, redisStore } from './stores.ts'

for (const [name, start] of Object.entries(ONE_SERVER)) {
  t.test(`${name}: a store that is not used sends no command`, async (t) => {
    const target = await start(t)
    const { store } = await redisStore(t, target)
    const client = openCommands(t, target)
    await until('it is connected', () => client.status === 'ready')
    const server = client instanceof Cluster ? client.nodes()[0]! : client
    const commands = async (): Promise<string[]> =>
      [...(await server.info('commandstats')).matchAll(/^cmdstat_(?!info)(\S+):calls=(\d+)/gm)].map(
        ([, command, calls]) => `${command} ${calls}`,
      )
    const before = await commands()
    await elapsed(1_500)
    t.strictSame(await commands(), before)
    await store.ping()
    t.strictNotSame(await commands(), before, 'one that is sent is counted')
  })
}

for (const [name, start] of Object.entries(ONE_SERVER)) {
  t.test(`${name}: the commands of one turn leave in one write`, async (t) => {
    const client = openCommands(t, await start(t))
    await until('it is connected', () => client.status === 'ready')
    const streams = () =>
      (client instanceof Cluster ? client.nodes('master') : [client]).map((node) => node.stream)
    const held = () => streams().reduce((sum, { writableLength }) => sum + writableLength, 0)
    await client.get('key')
    const replies = [client.get('key'), client.get('key')]
    const one = held() / 2
    t.ok(one > 0, 'both are held back')
    await Promise.all(replies)
    t.equal(held(), 0)
    const later = client.get('key')
    t.equal(held(), one, 'the next turn has a write of its own')
    await later
  })
}

for (const { title, withinMs, waitsMs, failsMs } of [
  {
    title: 'a command without a reply fails within a second, and not before most of it has passed',
    withinMs: undefined,
    waitsMs: 750,
    failsMs: 200,
  },
  {
    title: 'a command that gets less time than the last step takes no longer',
    withinMs: 30,
    waitsMs: 25,
    failsMs: 10,
  },
])
  t.test(title, async (t) => {
    const time = installVirtualTime(t)
    let outcome = 'waiting'
    inTime(new Promise(() => {}), withinMs).catch(({ message }) => {
      outcome = message
    })
    await time.advance(waitsMs)
    t.equal(outcome, 'waiting')
    await time.advance(failsMs)
    t.equal(outcome, 'no reply in time')
  })

t.test('a Cluster that was away, and not far away, gets the short time for its slots again', async (t) => {
  const cluster = openCommands(t, clusterTarget(await freePort())) as Cluster
  const { options } = cluster
  const short = options.slotsRefreshTimeout!
  let now = 0
  t.intercept(performance, 'now', { value: () => now, configurable: true })
  const connect = (tookMs: number): void => {
    cluster.emit('connecting')
    now += tookMs
    cluster.emit('ready')
  }
  options.clusterRetryStrategy!(2)
  t.ok(options.slotsRefreshTimeout! > short)
  connect(short)
  t.ok(options.slotsRefreshTimeout! > short, 'it is far away')
  connect(short - 1)
  t.equal(options.slotsRefreshTimeout, short)
})
