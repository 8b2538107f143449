import t from 'tap'
import { createStopSignals } from '../../src/process/stop-signals.ts'

t.test('below npm the copy that it sends of a signal is no second signal', async (t) => {
  let now = 0
  const meaningOf = createStopSignals({ isUnderNpm: true, monotonic: () => now })
  t.equal(meaningOf('SIGINT'), 'stop')
  now = 499
  t.equal(meaningOf('SIGINT'), 'copy')
  t.equal(meaningOf('SIGTERM'), 'end', 'another signal is no copy')
  now = 500
  t.equal(meaningOf('SIGINT'), 'end', 'so late it is no copy')
})
