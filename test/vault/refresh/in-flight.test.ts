import t from 'tap'
import { createInFlight, type Flight } from '../../../src/vault/refresh/gate.ts'

function made({ max = 64, timeoutMs = 10_000 } = {}) {
  let now = 0
  const inFlight = createInFlight({ max, timeoutMs, now: () => now })
  function add(): Flight {
    const flight = inFlight.add()
    flight.sent()
    return flight
  }
  const fill = (): Flight[] => Array.from({ length: inFlight.room() }, add)
  const pass = (ms: number): void => {
    now += ms
  }
  const end = (flight: Flight, answered = true): void => {
    flight.over(answered)
    flight.leave()
  }
  /** One round: all that may leave, and their responses after `ms`. Returns how many they were. */
  function round(ms: number): number {
    const flights = fill()
    pass(ms)
    for (const flight of flights) end(flight)
    return flights.length
  }
  return { inFlight, add, fill, pass, end, round }
}

t.test('the number begins at eight, and doubles while responses come fast', async (t) => {
  const { round } = made()
  t.strictSame(
    [1, 2, 3, 4, 5].map(() => round(100)),
    [8, 16, 32, 64, 64],
  )
  t.equal(made({ max: 3 }).round(100), 3, 'REFRESH_CONCURRENCY is the maximum')
})

t.test('the number grows by one while responses come in time, but not fast', async (t) => {
  const { round } = made()
  t.strictSame(
    [1, 2, 3, 4].map(() => round(3_000)),
    [8, 8, 9, 10],
  )
})

t.test('a response after half a timeout halves the number, once for all that had left before', async (t) => {
  const { round, inFlight, fill, pass, end } = made()
  t.strictSame(
    [1, 2, 3, 4, 5].map(() => round(5_100)),
    [8, 4, 2, 1, 1],
  )
  t.strictSame(
    [1, 2, 3].map(() => round(10)),
    [1, 2, 4],
  )
  const slow = fill()
  pass(5_001)
  t.equal(inFlight.room(), 0, 'before the response')
  for (const flight of slow) end(flight)
  t.equal(inFlight.room(), 4)
})

t.test('the number does not grow where there was room left', async (t) => {
  const { inFlight, add, end } = made()
  for (let request = 0; request < 100; request += 1) end(add())
  t.equal(inFlight.room(), 8)
})

t.test('the number begins again after a minute in which it was not reached', async (t) => {
  const { round, inFlight, add, pass, end } = made()
  for (let at = 0; at < 4; at += 1) round(100)
  t.equal(inFlight.room(), 64)
  pass(60_001)
  end(add())
  t.equal(inFlight.room(), 8)
})

t.test('the endpoint is late until a response in time, or until none has come for 30 seconds', async (t) => {
  const { inFlight, fill, pass, end } = made()
  const [first, second, ...others] = fill() as [Flight, Flight, ...Flight[]]
  t.notOk(inFlight.isLate())
  pass(6_000)
  end(first)
  t.ok(inFlight.isLate())
  t.ok(inFlight.mayBeQueued(0))
  pass(30_001)
  t.notOk(inFlight.isLate(), 'it does not answer at all')
  end(second)
  t.ok(inFlight.isLate())
  for (const flight of others) flight.leave()
  end(fill()[0]!)
  t.notOk(inFlight.isLate())
})

t.test('a request that hangs alone keeps its place only while its caller waits', async (t) => {
  const { inFlight, add, pass, end } = made()
  const hangs = add()
  pass(10_000)
  const other = add()
  pass(50)
  end(other)
  t.equal(inFlight.room(), 3)
  hangs.leave()
  t.equal(inFlight.room(), 4)
})

t.test(
  'a request is not in the queue of the endpoint where one that left much later is answered',
  async (t) => {
    const { inFlight, add, pass, end } = made()
    const lost = add()
    pass(10_001)
    lost.leave()
    const late = add()
    pass(6_000)
    end(late)
    t.ok(inFlight.isLate())
    t.notOk(inFlight.mayBeQueued(0))
    t.ok(inFlight.mayBeQueued(10_001))
  },
)

t.test('a request that was never sent leaves nothing', async (t) => {
  const { inFlight } = made()
  inFlight.add().leave()
  t.equal(inFlight.room(), 8)
})
