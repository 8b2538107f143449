import t from 'tap'
import { createSlots } from '../../src/tokens/slots.ts'

t.test('at most `count` slots are held at once, and waiters get one in order of their request', async (t) => {
  const slots = createSlots(2)
  const first = await slots.take()
  await slots.take()
  t.equal(slots.free(), 0)
  const order: number[] = []
  const third = slots.take().then((release) => {
    order.push(3)
    return release
  })
  const fourth = slots.take().then((release) => {
    order.push(4)
    return release
  })
  await Promise.resolve()
  t.strictSame(order, [])
  first()
  const release = await third
  t.strictSame(order, [3])
  release()
  await fourth
  t.strictSame(order, [3, 4])
})

t.test('releasing a slot twice releases it once', async (t) => {
  const slots = createSlots(1)
  const release = await slots.take()
  release()
  release()
  t.equal(slots.free(), 1)
})
