import { runTogether } from './helpers/together.ts'

// Tap starts files in the order of their paths: this process takes long, so its name is the first.
// Tests of tokens/ replace the timers, so no file here sets `t.jobs`.
runTogether('tokens', '.', 'config', 'oauth', 'ops', 'process', 'session', 'spa', 'tracing', 'live')
