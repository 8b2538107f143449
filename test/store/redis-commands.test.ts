import { Cluster, type Redis } from 'ioredis'
import t from 'tap'
import { createWriteJoiner, inTime } from '../../src/store/redis/commands.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { installVirtualTime } from '../tokens/virtual-time.ts'
import { ONE_SERVER, openCommands, redisStore } from './stores.ts'

for (const [name, start] of Object.entries(ONE_SERVER)) {
  t.test(
    `${name}: the commands of one event loop turn are sent together, and those of the next turn too`,
    async (t) => {
      const client = openCommands(t, await start(t))
      await until('it is connected', () => client.status === 'ready')
      const joinWrites = createWriteJoiner(client)
      const streamOf = () => (client instanceof Cluster ? client.nodes() : [client as Redis])[0]!.stream
      for (const turn of ['one', 'two']) {
        const stream = streamOf()
        const answers = Array.from({ length: 5 }, (_, at) => {
          joinWrites()
          return client.set(`key-${at}`, turn)
        })
        t.ok(stream.writableLength > 0, 'they are buffered until the end of the turn')
        t.strictSame(await Promise.all(answers), Array(5).fill('OK'))
        t.equal(stream.writableCorked, 0)
        t.equal(await client.get('key-4'), turn)
      }
    },
  )

  t.test(`${name}: a connection that breaks in that turn does not affect its successor`, async (t) => {
    const client = openCommands(t, await start(t))
    client.on('error', () => {})
    await until('it is connected', () => client.status === 'ready')
    const joinWrites = createWriteJoiner(client)
    joinWrites()
    const failed = client.set('a', '1').catch(() => 'failed')
    for (const { stream } of client instanceof Cluster ? client.nodes() : [client]) stream.destroy()
    joinWrites()
    await failed
    await until('it works again', async () => {
      joinWrites()
      return (await client.set('a', '2').catch(() => null)) === 'OK'
    })
  })
}

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

t.test('a command without a reply fails within a second, and not before most of it has passed', async (t) => {
  const time = installVirtualTime(t)
  let outcome = 'waiting'
  inTime(new Promise(() => {})).catch(({ message }) => {
    outcome = message
  })
  await time.advance(750)
  t.equal(outcome, 'waiting')
  await time.advance(200)
  t.equal(outcome, 'no reply in time')
})

t.test('a process that was stalled takes a reply that came meanwhile', async (t) => {
  const time = installVirtualTime(t)
  let reply = (_: string): void => {}
  const answer = inTime(
    new Promise<string>((resolve) => {
      reply = resolve
    }),
  )
  time.stall(60_000)
  // Timers run before sockets are read.
  await time.advance(0)
  reply('read after the timers')
  t.equal(await answer, 'read after the timers')
})
