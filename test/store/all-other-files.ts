import { runTogether } from '../helpers/together.ts'

// The files of this folder that .taprc does not name. Some of them replace the timers, so none sets `t.jobs`.
runTogether(
  'store/contract.test.ts',
  'store/outbox.test.ts',
  'store/queue.test.ts',
  'store/record.test.ts',
  'store/record-rules.test.ts',
  'store/redis-commands.test.ts',
  'store/redis-health.test.ts',
  'store/redis-keys.test.ts',
  'store/redis-scripts.test.ts',
  'store/redis-slot-migration.test.ts',
  'store/redis-tls.test.ts',
)
