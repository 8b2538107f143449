import { runTogether } from '../helpers/together.ts'

// Their tests wait most of the time, so several of them run at once.
runTogether(
  'flows/addresses.test.ts',
  'flows/drain.test.ts',
  'flows/far-redis.test.ts',
  'flows/interop.test.ts',
  'flows/rotation.test.ts',
  'flows/stop.test.ts',
)
