import { runTogether } from '../../helpers/together.ts'

// Their tests wait most of the time, so several of them run at once.
runTogether(
  'vault/store/redis-history.test.ts',
  'vault/store/redis-incidents.test.ts',
  'vault/store/redis-outage.test.ts',
  'vault/store/redis-refused.test.ts',
  'vault/store/redis-sentinels.test.ts',
)
