import { runTogether } from './helpers/together.ts'

runTogether('.', 'config', 'oauth', 'ops', 'session', 'spa', 'tracing')
