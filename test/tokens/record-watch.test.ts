import t from 'tap'
import { createRecordWatch } from '../../src/tokens/record-watch.ts'
import { installVirtualTime } from './virtual-time.ts'

/** A watch over a store whose changes and messages the test controls. */
function start() {
  const changeListeners: ((key: string) => void)[] = []
  const liveListeners: ((live: boolean) => void)[] = []
  let live = true
  const watchRecord = createRecordWatch({
    onChange: (listener) => void changeListeners.push(listener),
    health: {
      isLive: () => live,
      onLive: (listener) => void liveListeners.push(listener),
      isUnreached: () => false,
      onIncident() {},
      msSinceIncident: () => Number.POSITIVE_INFINITY,
    },
  })
  const setLive = (value: boolean): void => {
    live = value
    for (const listener of liveListeners) listener(value)
  }
  return {
    watchRecord,
    change: (key: string) => {
      for (const listener of changeListeners) listener(key)
    },
    lose: () => setLive(false),
    recover: () => setLive(true),
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

t.test('a change wakes the waiters of that record and no others', async (t) => {
  const time = installVirtualTime(t)
  const { watchRecord, change } = start()
  const mine = watchRecord('a').next(5_000)
  const also = watchRecord('a').next(5_000)
  const other = watchRecord('b').next(5_000)
  change('a')
  t.ok(await isOver(mine, time))
  t.ok(await isOver(also, time))
  t.notOk(await isOver(other, time))
  await time.advance(5_000)
  t.ok(await isOver(other, time))
  t.equal(time.waiting(), 0)
})

t.test('a change before the wait is not missed, and counts once', async (t) => {
  const time = installVirtualTime(t)
  const { watchRecord, change } = start()
  const watch = watchRecord('a')
  change('a')
  t.ok(await isOver(watch.next(5_000), time))
  t.notOk(await isOver(watch.next(5_000), time))
})

t.test('after a loss of messages every waiter reads the record, again and again', async (t) => {
  const time = installVirtualTime(t)
  const { watchRecord, lose } = start()
  const watch = watchRecord('a')
  const waiting = watch.next(60_000)
  lose()
  t.ok(await isOver(waiting, time))
  const again = watch.next(60_000)
  await time.advance(300)
  t.ok(await isOver(again, time))
})

t.test('messages that arrive again wake no waiter', async (t) => {
  const time = installVirtualTime(t)
  const { watchRecord, lose, recover } = start()
  const watch = watchRecord('a')
  lose()
  await watch.next(60_000)
  recover()
  const waiting = watch.next(60_000)
  await time.advance(59_000)
  t.notOk(await isOver(waiting, time))
  await time.advance(1_000)
  t.ok(await isOver(waiting, time))
})

t.test('a stopped watch wakes no waiter', async (t) => {
  const { watchRecord, change } = start()
  let calls = 0
  const watch = watchRecord('a', () => {
    calls += 1
  })
  change('a')
  watch.stop()
  change('a')
  t.equal(calls, 1)
})
