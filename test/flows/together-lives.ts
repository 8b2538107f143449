import { runTogether } from '../helpers/together.ts'

// Their tests wait for the ends of tokens.
runTogether(
  'flows/refresh-processes.test.ts',
  'flows/servers.test.ts',
  'flows/servers-killed.test.ts',
  'flows/tracing.test.ts',
)
