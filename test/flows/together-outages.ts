import { runTogether } from '../helpers/together.ts'

// Their tests wait most of the time, so several of them run at once.
runTogether(
  'flows/outage-cluster.test.ts',
  'flows/outage-refusals.test.ts',
  'flows/outage.test.ts',
  'flows/redis-tls.test.ts',
  'flows/store-wait.test.ts',
)
