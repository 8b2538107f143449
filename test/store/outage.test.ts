import { setImmediate as turn } from 'node:timers/promises'
import { pino } from 'pino'
import t from 'tap'
import { createOutage } from '../../src/session/outage.ts'

t.test('a grace that is over does not begin again, however close its last call is', async (t) => {
  for (let round = 0; round < 100; round += 1) {
    const events: string[] = []
    const log = pino({}, { write: (line: string) => void events.push(JSON.parse(line).event) })
    let lose = (): void => {}
    const arrivedAt = performance.now()
    const store = {
      msSinceMessagesArrived: () => performance.now() - arrivedAt,
      onMessagesLost: (listener: () => void) => {
        lose = listener
      },
      onMessagesBack() {},
      unreached: () => true,
    }
    const outage = createOutage({ store, graceMs: 5, log })
    lose()
    // Until it is over and two milliseconds more.
    let until = Number.POSITIVE_INFINITY
    while (performance.now() < until) {
      if (events.length > 1) until = Math.min(until, performance.now() + 2)
      outage.isInGrace()
      await turn()
    }
    t.equal(events.join(), 'grace.begun,grace.ended', `round ${round}`)
  }
})

t.test('a process that was stopped for longer than the grace begins none when it goes on', async (t) => {
  let ms = 0
  const store = {
    msSinceMessagesArrived: () => ms,
    onMessagesLost() {},
    onMessagesBack() {},
    unreached: () => true,
  }
  const outage = createOutage({ store, graceMs: 5_000, log: pino({ level: 'silent' }) })
  t.ok(outage.isInGrace())
  ms = 5_500
  t.notOk(outage.isInGrace(), 'before it has noticed that messages stopped')
})
