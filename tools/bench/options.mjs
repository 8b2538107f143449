// The flags of `npm run bench`.
import { parseArgs } from 'node:util'
import { PAGE } from './places.mjs'
import { readNumbers } from './program.mjs'

const FLAGS = {
  rounds: { type: 'string' },
  seconds: { type: 'string' },
  warmup: { type: 'string' },
  sessions: { type: 'string' },
  connections: { type: 'string' },
  sizes: { type: 'string' },
  only: { type: 'string' },
  load: { type: 'string' },
  page: { type: 'string' },
  quick: { type: 'boolean', default: false },
  help: { type: 'boolean', default: false },
}

export const HELP = `npm run bench -- [flags]
  --rounds <n>       rounds over all candidates (7), each in new processes; every second one in reverse order
  --seconds <s>      length of the load of a candidate in each round (4), in turns of a second
  --warmup <s>       load before it, in the same process (6); a third of it before the second size
  --only <a,b>       only these candidates
  --sizes <kb,kb>    sizes of the answer: 1, 256 (1)
  --connections <n>  keep-alive connections of the load (64; a quarter of it for 256 KB)
  --sessions <n>     signed-in browsers that take turns (100)
  --load <how>       wrk or sockets (wrk where it is installed)
  --page <file>      the page to write (docs/benchmarks.md; its chart is in the same folder)
  --quick            two rounds of one second: to see that it works; writes no page unless --page is given`

/** A process has its final speed after about 100,000 requests, which a slow machine serves in five seconds. */
const USUAL = { rounds: 7, seconds: 4, warmup: 6, sessions: 100 }
const QUICK = { rounds: 2, seconds: 1, warmup: 0.5, sessions: 40 }
/** Share of the connections that a load uses, by response size in kilobytes. */
const SIZES = new Map([
  ['1', 1],
  ['256', 1 / 4],
])

/** Parses the command line. Throws an Error whose message is for the user. */
export function readOptions(args, candidateNames) {
  const { values } = parseArgs({ args, options: FLAGS })
  const base = values.quick ? QUICK : USUAL
  const { rounds, seconds, warmup, sessions, connections } = readNumbers(values, { ...base, connections: 64 })
  const only = list(values.only) ?? candidateNames
  for (const name of only) {
    if (!candidateNames.includes(name))
      throw new Error(`--only: ${name} is none of ${candidateNames.join(', ')}`)
  }
  const sizes = list(values.sizes) ?? ['1']
  for (const size of sizes) if (!SIZES.has(size)) throw new Error('--sizes: 1, 256 or both')
  const load = values.load ?? null
  if (load !== null && load !== 'wrk' && load !== 'sockets') throw new Error('--load must be wrk or sockets')
  return {
    help: values.help,
    rounds,
    seconds,
    warmupSeconds: warmup,
    sessions,
    sizes: sizes.map((kilobytes) => ({
      kilobytes,
      connections: Math.max(1, Math.round(connections * SIZES.get(kilobytes))),
    })),
    only,
    load,
    // A partial table must not replace the complete one.
    page: values.page ?? (values.quick || values.only || values.sizes ? null : PAGE),
  }
}

function list(text) {
  return text === undefined ? null : text.split(',').map((part) => part.trim())
}
