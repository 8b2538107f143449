import { runTogether } from '../helpers/together.ts'

// Their tests wait most of the time, so several of them run at once.
runTogether(
  'flows/one-presentation.test.ts',
  'flows/refresh-background.test.ts',
  'flows/refresh-failures.test.ts',
  'flows/refresh-store.test.ts',
)
