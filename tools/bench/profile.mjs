// `npm run profile -- [candidate | refresh] [seconds]`: which packages and functions take the CPU time of a call through a
// candidate of the question calls that runs on Node, or of a refresh. Prints the 40 that take most.
import { readdirSync, readFileSync } from 'node:fs'
import { SourceMap } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ROOT } from './machine.mjs'
import { markdownTable } from './page.mjs'
import { calls } from './questions/calls.mjs'
import { startBackground } from './questions/refresh.mjs'
import { withServices } from './services.mjs'
import { putUnderLoad } from './under-load.mjs'

const LINES = 40
const [, , subject = 'ours', seconds = '5'] = process.argv
const maps = new Map()

await withServices(async (services) => {
  const folder = join(services.processes.folder, 'profile')
  const nodeArgs = ['--cpu-prof', '--cpu-prof-interval=500', `--cpu-prof-dir=${folder}`]
  const { run, stop } = await startSubject(services, { nodeArgs })
  await run(Number(seconds))
  const from = Number(process.hrtime.bigint() / 1_000n)
  const count = await run(Number(seconds))
  await stop()
  const profile = JSON.parse(readFileSync(join(folder, readdirSync(folder)[0]), 'utf8'))
  print(profile, { from, count })
})

async function startSubject(services, options) {
  if (subject === 'refresh') {
    const { refresh, stop } = await startBackground(services, {}, options.nodeArgs)
    return { run: async (length) => (await refresh(length * 2_000)).count, stop }
  }
  const candidate = calls.candidates.find(({ name }) => name === subject)
  if (candidate === undefined)
    throw new Error(`${subject} is none of refresh, ${calls.candidates.map(({ name }) => name).join(', ')}`)
  const start = (given) => candidate.start(given, options)
  const { load, stop } = await putUnderLoad(
    services,
    { ...candidate, start },
    calls.shapeOf({ browsers: 100, connections: 64 }),
  )
  return { run: async (length) => (await load(length)).count, stop }
}

/** `from`: what was before, in microseconds of the monotonic clock, was the warm-up. */
function print({ nodes, samples, timeDeltas, startTime }, { from, count }) {
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, sourceOf(callFrame)]))
  const [byPackage, byFunction] = [new Map(), new Map()]
  let at = startTime
  for (const [each, id] of samples.entries()) {
    at += timeDeltas[each]
    const { name, file, line } = frames.get(id)
    if (at < from || name === '(idle)') continue
    add(byPackage, packageOf(file) || name, timeDeltas[each])
    add(byFunction, `${name} ${file}${file === '' ? '' : `:${line}`}`, timeDeltas[each])
  }
  const columns = [
    [`${subject}, ${count} times`, ([place]) => place],
    ['CPU µs each', ([, value]) => (value / count).toFixed(1)],
  ]
  for (const groups of [byPackage, byFunction])
    console.log(`\n${markdownTable(columns, [...groups].sort((a, b) => b[1] - a[1]).slice(0, LINES))}`)
}

/** The function before it was bundled into dist/. */
function sourceOf({ functionName, url, lineNumber, columnNumber }) {
  const name = functionName || '(anonymous)'
  const inDist = url.startsWith('file:') && fileURLToPath(url).startsWith(join(ROOT, 'dist'))
  if (!inDist) return { name, file: url, line: lineNumber + 1 }
  if (!maps.has(url))
    maps.set(url, new SourceMap(JSON.parse(readFileSync(`${fileURLToPath(url)}.map`, 'utf8'))))
  const { originalSource = url, originalLine = lineNumber } = maps
    .get(url)
    .findEntry(lineNumber, columnNumber)
  return { name, file: originalSource.replace(/^(\.\.\/)+/, ''), line: originalLine + 1 }
}

/** The package, the folder of this server, or the module of Node. */
function packageOf(file) {
  if (file.startsWith('node:')) return file.replace(/^(node:internal\/\w+|node:\w+).*/, '$1')
  const inModules = /.*\/?node_modules\/(@[^/]+\/[^/]+|[^/]+)/.exec(file)
  return inModules?.[1] ?? file.replace(/[^/]*$/, '')
}

function add(groups, name, value) {
  groups.set(name, (groups.get(name) ?? 0) + value)
}
