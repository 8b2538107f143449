import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { runCampaign } from './campaign.ts'
import { describeViolations, summarize } from './describe.ts'
import { KINDS } from './faults.ts'
import type { Mode } from './history.ts'

const MODES: readonly Mode[] = ['single', 'sentinel', 'cluster']
const USAGE = `Chaos: real servers, real Redis and the sandbox platform, under faults.

npm run chaos -- [--mode single|sentinel|cluster|all] [--minutes M] [--seed S] [--browsers N] [--only TEXT]

  --mode      how Redis runs; all (default) runs the three one after the other
  --minutes   length of each mode, default 1
  --seed      the same seed gives the same plan of faults, default: a new one
  --browsers  simulated users at once in each mode, default 30
  --only      only faults whose name holds this text, for example 'the master'

Exit code 0: no violation. 1: violations, each printed with its history. 2: called wrongly.`
const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** Time with faults in each round. */
const ROUND_MS = 30_000

const { modes, minutes, seed, browsers, only } = readArguments()
build()
console.log(`seed ${seed}, ${modes.join(', ')}, ${minutes} min each, ${browsers} browsers`)
let isStopped = false
process.on('SIGINT', () => {
  if (isStopped) process.exit(130)
  isStopped = true
  console.log('the campaign ends after this round; Ctrl-C again ends it at once')
})
let violations = 0
for (const mode of modes) if (!isStopped) violations += await run(mode)
console.log(
  violations === 0
    ? '\nGREEN: no violation'
    : `\nRED: ${violations} violations; the plan again: --seed ${seed}`,
)
process.exit(violations === 0 ? 0 : 1)

async function run(mode: Mode): Promise<number> {
  const cleanups: (() => unknown)[] = []
  const t = { teardown: (handler: () => unknown) => cleanups.unshift(handler) }
  const print = (line: string): void => console.log(`${mode.padEnd(8)}  ${line}`)
  const lengthMs = minutes * 60_000
  const roundMs = Math.min(ROUND_MS, lengthMs)
  try {
    const options = { mode, seed, lengthMs, roundMs, browsers, only, print, isStopped: () => isStopped }
    const { history, verdict } = await runCampaign(t, options)
    for (const line of [...describeViolations(verdict), 'summary', ...summarize(history, verdict)])
      print(line)
    return verdict.violations.length
  } finally {
    for (const cleanup of cleanups) await cleanup()
  }
}

function readArguments() {
  try {
    const { values } = parseArgs({
      options: {
        mode: { type: 'string', default: 'all' },
        minutes: { type: 'string', default: '1' },
        seed: { type: 'string', default: String(Math.floor(Math.random() * 1e9)) },
        browsers: { type: 'string', default: '30' },
        only: { type: 'string', default: '' },
        help: { type: 'boolean', default: false },
      },
    })
    if (values.help) {
      console.log(USAGE)
      process.exit(0)
    }
    const modes = MODES.filter((mode) => values.mode === 'all' || values.mode === mode)
    const minutes = Number(values.minutes)
    const seed = Number(values.seed)
    const browsers = Number(values.browsers)
    const only = Object.keys(KINDS).filter((name) => name.includes(values.only))
    if (modes.length === 0) throw new Error(`--mode must be one of ${MODES.join(', ')}, all`)
    if (!(minutes > 0 && minutes <= 24 * 60)) throw new Error('--minutes must be a number from 0 to 1440')
    if (!Number.isSafeInteger(seed)) throw new Error('--seed must be a whole number')
    if (!Number.isInteger(browsers) || browsers < 1 || browsers > 500)
      throw new Error('--browsers must be 1 to 500')
    if (only.length === 0)
      throw new Error(`--only: no fault is named so. Faults: ${Object.keys(KINDS).join(', ')}`)
    return { modes, minutes, seed, browsers, only }
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : String(error)}\n\n${USAGE}`)
    process.exit(2)
  }
}

/** Builds dist/ where it is missing or older than src/. Not always: another campaign may be running from it. */
function build(): void {
  const built = join(ROOT, 'dist', 'main.js')
  const sources = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
  const newest = Math.max(...sources.map((name) => statSync(join(ROOT, 'src', name)).mtimeMs))
  if (existsSync(built) && statSync(built).mtimeMs >= newest) return
  console.log('dist/ is missing or older than src/: building it')
  const { status } = spawnSync(process.execPath, [join(ROOT, 'scripts', 'build.mjs')], { stdio: 'inherit' })
  if (status === 0) return
  console.error('The build failed: nothing was run.')
  process.exit(2)
}
