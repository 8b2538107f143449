import t from 'tap'
import { createLog } from '../../src/log.ts'
import { StoreUnavailable } from '../../src/store/store.ts'
import type { StoreStep } from '../../src/tokens/events.ts'
import { createInsist } from '../../src/tokens/insist.ts'
import { installVirtualTime } from './virtual-time.ts'

t.test('a step is repeated every second until the store takes it', async (t) => {
  const time = installVirtualTime(t)
  const retried: StoreStep[] = []
  const insist = createInsist({
    monotonic: time.now,
    log: createLog('silent'),
    onRetry: (step) => retried.push(step),
  })
  let tries = 0
  insist.insist('lease', 'a', 10_000, async () => {
    tries += 1
    if (tries < 3) throw new StoreUnavailable(new Error('down'))
  })
  await time.advance(10_000)
  t.equal(tries, 3)
  t.strictSame(retried, ['lease', 'lease', 'lease'])
  t.equal(time.waiting(), 0)
})

t.test('it is given up at its time, and while it waits another like it is dropped', async (t) => {
  const time = installVirtualTime(t)
  const retried: StoreStep[] = []
  const insist = createInsist({
    monotonic: time.now,
    log: createLog('silent'),
    onRetry: (step) => retried.push(step),
  })
  let tries = 0
  const fail = async () => {
    tries += 1
    throw new StoreUnavailable(new Error('down'))
  }
  insist.insist('lease', 'a', 3_000, fail)
  insist.insist('lease', 'a', 60_000, () => Promise.reject(new Error('must not be tried')))
  await time.advance(60_000)
  t.equal(tries, 3)
  t.equal(time.waiting(), 0)
})

t.test('stopping leaves no timer', async (t) => {
  const time = installVirtualTime(t)
  const retried: StoreStep[] = []
  const insist = createInsist({
    monotonic: time.now,
    log: createLog('silent'),
    onRetry: (step) => retried.push(step),
  })
  insist.insist('lease', 'a', 60_000, async () => {})
  insist.stop()
  t.equal(time.waiting(), 0)
  insist.insist('lease', 'b', 60_000, async () => {})
  t.equal(time.waiting(), 0)
})
