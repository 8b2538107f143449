// `npm run profile`: which code takes the time and the memory of a call, of the same call through bare Node, and of a refresh.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { bare } from './candidates/node-servers.mjs'
import { startOurs } from './candidates/ours.mjs'
import { chooseLoad, runLoad } from './load/load.mjs'
import { ROOT } from './places.mjs'
import { readNumbers, runProgram, say, withServices } from './program.mjs'
import { order, startWorker } from './refresh/workers.mjs'
import { markdownTable } from './report/table.mjs'
import { requestsOf } from './rounds.mjs'

const HELP = `npm run profile -- [flags]
  --only <call,bare,refresh>  what to profile (all): a call of this server, of bare Node, a refresh
  --seconds <s>               length of each recording (5)
  --lines <n>                 functions to print (25)`

const SUBJECTS = { call: profileCall(startOurs), bare: profileCall(bare.start), refresh: profileRefresh }
const ROOT_URL = pathToFileURL(`${ROOT}/`).href
const RECORDER = fileURLToPath(new URL('profile/recorder.mjs', import.meta.url))

await runProgram({ help: HELP, read: readOptions, run })

function readOptions() {
  const text = { type: 'string' }
  const { values } = parseArgs({
    options: { only: text, seconds: text, lines: text, help: { type: 'boolean', default: false } },
  })
  const subjects = (values.only ?? Object.keys(SUBJECTS).join()).split(',')
  for (const name of subjects) {
    if (!Object.hasOwn(SUBJECTS, name))
      throw new Error(`--only: ${name} is none of ${Object.keys(SUBJECTS).join(', ')}`)
  }
  return { help: values.help, subjects, ...readNumbers(values, { seconds: 5, lines: 25 }) }
}

async function run({ subjects, seconds, lines }) {
  await withServices(async (started) => {
    const services = { ...started, sessions: 300 }
    for (const name of subjects) {
      say(`recording: ${name}`)
      const { count, profile } = await SUBJECTS[name](services, {
        file: join(services.folder, `${name}.json`),
        seconds,
      })
      print(name, { count, profile, lines })
    }
  })
}

/** `work` is measured after the same work has warmed the process up. Returns how often it was done, and the profile. */
async function record({ pid, file, work }) {
  await work()
  process.kill(pid, 'SIGUSR2')
  await pause(200)
  const count = await work()
  process.kill(pid, 'SIGUSR2')
  for (;;) {
    await pause(200)
    try {
      return { count, profile: JSON.parse(readFileSync(file, 'utf8')) }
    } catch {
      // Not written yet, or not to its end.
    }
  }
}

function profileCall(start) {
  return async (services, { file, seconds }) => {
    const started = await start(services, { nodeArgs: ['--import', RECORDER], env: { BENCH_PROFILE: file } })
    const requests = requestsOf(started, { kilobytes: 1 }, services.ourCookies ?? ['session=none'])
    const shape = { url: started.url, requests, connections: 64, seconds }
    const load = () => runLoad({ kind: chooseLoad(null), folder: services.folder, ...shape })
    const recorded = await record({ pid: started.pid, file, work: async () => (await load()).requests })
    await started.stop()
    return recorded
  }
}

async function profileRefresh(services, { file, seconds }) {
  const worker = await startWorker(services, {
    way: 'request',
    nodeArgs: ['--import', RECORDER],
    env: { BENCH_PROFILE: file },
  })
  return await record({
    pid: worker.pid,
    file,
    work: async () => (await order(worker, { seconds })).refreshes,
  })
}

function print(name, { count, profile, lines }) {
  const time = timeByPlace(profile.time)
  const allocated = bytesByPlace(profile.allocations)
  const tables = [
    [`${name}: time by package or folder, µs each`, group(time, packageOf)],
    [`${name}: time by function, µs each`, group(time, functionOf)],
    [`${name}: allocations by package or folder, bytes each`, group(allocated, packageOf)],
    [`${name}: allocations by function, bytes each`, group(allocated, functionOf)],
  ]
  for (const [heading, groups] of tables) {
    const total = [...groups.values()].reduce((sum, value) => sum + value, 0)
    const rows = [...groups].sort((a, b) => b[1] - a[1]).slice(0, lines)
    const columns = [
      ['', 'left', ([place]) => place],
      ['each', 'right', ([, value]) => (value / count).toFixed(1)],
      ['%', 'right', ([, value]) => ((100 * value) / total).toFixed(1)],
    ]
    console.log(`\n### ${heading} (${count} times, ${(total / count).toFixed(1)} in all)\n`)
    console.log(markdownTable(columns, rows))
  }
}

/** Microseconds by place in the code, without idle time. */
function timeByPlace({ nodes, samples, timeDeltas }) {
  const byId = new Map(nodes.map((node) => [node.id, node.callFrame]))
  const places = []
  for (const [at, id] of samples.entries()) {
    const frame = byId.get(id)
    if (frame.functionName !== '(idle)') places.push([frame, timeDeltas[at]])
  }
  return places
}

function bytesByPlace({ head }) {
  const places = []
  const walk = ({ callFrame, selfSize, children }) => {
    places.push([callFrame, selfSize])
    for (const child of children) walk(child)
  }
  walk(head)
  return places
}

function group(places, nameOf) {
  const groups = new Map()
  for (const [frame, value] of places) groups.set(nameOf(frame), (groups.get(nameOf(frame)) ?? 0) + value)
  return groups
}

/** The package, the folder of this server, or the module of Node that a function belongs to. */
function packageOf({ url, functionName }) {
  if (url === '') return functionName.startsWith('(') ? functionName : '(native)'
  if (url.startsWith('node:')) return url.replace(/^(node:internal\/\w+|node:\w+).*/, '$1')
  const inModules = url.lastIndexOf('/node_modules/')
  if (inModules >= 0) {
    const [scope, name] = url.slice(inModules + '/node_modules/'.length).split('/')
    return scope.startsWith('@') ? `${scope}/${name}` : scope
  }
  return url.startsWith(ROOT_URL) ? url.slice(ROOT_URL.length).replace(/[^/]*$/, '') : url
}

function functionOf({ url, functionName, lineNumber }) {
  const file = url.replace(/^.*\/node_modules\//, '').replace(ROOT_URL, '')
  // The source maps of packages name files alone.
  const line = lineNumber > 0 ? `:${lineNumber + 1}` : ''
  return url === '' ? functionName : `${functionName || '(anonymous)'} ${file}${line}`
}
