import { runTogether } from './helpers/together.ts'

// Tap starts files in the order of their paths: this process takes long, so its name is the first.
// Tests of vault/refresh/ replace the timers, so no file here sets `t.jobs`.
runTogether(
  'vault/refresh',
  '.',
  'config',
  'oauth',
  'ops',
  'process',
  'vault',
  'spa',
  'tracing',
  'operator/draft',
  'operator/measure',
)
