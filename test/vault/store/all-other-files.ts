import { runTogether } from '../../helpers/together.ts'

// The files of this folder that .taprc does not name. Some of them replace the timers, so none sets `t.jobs`.
runTogether(
  'vault/store/contract.test.ts',
  'vault/store/hash-records.test.ts',
  'vault/store/outbox.test.ts',
  'vault/store/queue.test.ts',
  'vault/store/record-rules.test.ts',
  'vault/store/redis-commands.test.ts',
  'vault/store/redis-health.test.ts',
  'vault/store/redis-keys.test.ts',
  'vault/store/redis-scripts.test.ts',
  'vault/store/redis-slot-migration.test.ts',
  'vault/store/redis-tls.test.ts',
  'vault/store/run.test.ts',
)
