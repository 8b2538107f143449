import { runTogether } from '../helpers/together.ts'

// Their tests wait most of the time, so several of them run at once.
runTogether(
  'store/redis-history.test.ts',
  'store/redis-incidents.test.ts',
  'store/redis-outage.test.ts',
  'store/redis-refused.test.ts',
  'store/redis-sentinels.test.ts',
)
