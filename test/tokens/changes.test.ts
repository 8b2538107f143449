import t from 'tap'
import { createWatchChanges } from '../../src/tokens/changes.ts'
import { installVirtualTime } from './virtual-time.ts'

function made() {
  const told: ((key: string) => void)[] = []
  const lost: (() => void)[] = []
  let arrive = true
  const watchChanges = createWatchChanges({
    onChange: (listener) => void told.push(listener),
    onMessagesLost: (listener) => void lost.push(listener),
    messagesArrive: () => arrive,
  })
  return {
    watchChanges,
    change: (key: string) => {
      for (const listener of told) listener(key)
    },
    lose: () => {
      arrive = false
      for (const listener of lost) listener()
    },
  }
}

async function isOver(work: Promise<unknown>, time: { settle(): Promise<void> }): Promise<boolean> {
  let over = false
  void work.then(() => {
    over = true
  })
  await time.settle()
  return over
}

t.test('a change wakes who waits for that record, and nobody else', async (t) => {
  const time = installVirtualTime(t)
  const { watchChanges, change } = made()
  const mine = watchChanges('a').next(5_000)
  const also = watchChanges('a').next(5_000)
  const other = watchChanges('b').next(5_000)
  change('a')
  t.ok(await isOver(mine, time))
  t.ok(await isOver(also, time))
  t.notOk(await isOver(other, time))
  await time.advance(5_000)
  t.ok(await isOver(other, time))
  t.equal(time.waiting(), 0)
})

t.test('a change that came before the waiting began is not missed, and counts once', async (t) => {
  const time = installVirtualTime(t)
  const { watchChanges, change } = made()
  const watch = watchChanges('a')
  change('a')
  t.ok(await isOver(watch.next(5_000), time))
  t.notOk(await isOver(watch.next(5_000), time))
})

t.test('when messages are lost everybody looks, and goes on looking', async (t) => {
  const time = installVirtualTime(t)
  const { watchChanges, lose } = made()
  const watch = watchChanges('a')
  const waiting = watch.next(60_000)
  lose()
  t.ok(await isOver(waiting, time))
  const again = watch.next(60_000)
  await time.advance(300)
  t.ok(await isOver(again, time))
})

t.test('a watch that was stopped is told nothing', async (t) => {
  const { watchChanges, change } = made()
  let calls = 0
  const watch = watchChanges('a', () => {
    calls += 1
  })
  change('a')
  watch.stop()
  change('a')
  t.equal(calls, 1)
})
