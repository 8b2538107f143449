import { runTogether } from '../helpers/together.ts'

// Their tests wait most of the time, so several of them run at once.
runTogether('flows/failover-cluster.test.ts', 'flows/failover-sentinel.test.ts')
