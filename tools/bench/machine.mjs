// Paths, cores, and what processes use. Linux only.
import { spawnSync } from 'node:child_process'
import { existsSync, openSync, readdirSync, readFileSync, writeSync } from 'node:fs'
import { cpus, release, totalmem } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const BENCH = fileURLToPath(new URL('.', import.meta.url))
export const ROOT = join(BENCH, '..', '..')
export const MAIN = join(ROOT, 'dist', 'main.js')

const FOLDERS = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/usr/local/bin']

/** The full path of a program, or null. */
export const findProgram = (name) =>
  FOLDERS.map((folder) => join(folder, name)).find((path) => existsSync(path)) ?? null

const taskset = findProgram('taskset')
const setpriv = findProgram('setpriv')
const allowed = allowedCores()
/** Core lists for taskset: what is measured has a core of its own. null: nothing can be pinned. */
const CORES =
  taskset === null || allowed.length < 2
    ? null
    : { server: String(allowed[1]), load: allowed.filter((_, at) => at !== 1).join() }

/** The command line that runs a program on the cores `server` or `load`. The kernel ends it with this process. */
export function pinned(core, command, args) {
  const withUs = setpriv === null ? [] : [setpriv, '--pdeathsig', 'TERM']
  const onCore = CORES === null ? [] : [taskset, '-c', CORES[core]]
  const [program, ...rest] = [...withUs, ...onCore, command, ...args]
  return [program, rest]
}

/** Pins this process to the cores of the load. */
export function moveToLoad() {
  if (CORES !== null) spawnSync(taskset, ['-a', '-p', '-c', CORES.load, String(process.pid)])
}

/** As long as this file is open and holds zero, idle cores do not sleep (Linux, PM QoS). */
const AWAKE_FILE = '/dev/cpu_dma_latency'
let isAwake = false

/**
 * Keeps idle cores awake while this process lives, where it may (root). A write to a program on a sleeping virtual core
 * includes waking it up: a quarter of the cost of a call, or nothing where that core happens to be busy.
 */
export function keepAwake() {
  try {
    isAwake = writeSync(openSync(AWAKE_FILE, 'w'), new Uint8Array(4)) > 0
  } catch {}
}

export function describeMachine() {
  const model = /^\S+ \S+/.exec(cpus()[0]?.model ?? '')?.[0] ?? 'unknown'
  const pinning = CORES === null ? ', nothing pinned' : ''
  return `${cpus().length} cores (${model}), ${Math.round(totalmem() / 2 ** 30)} GB, Linux ${release().split('.', 2).join('.')}, idle cores ${isAwake ? 'awake' : 'asleep'}${pinning}`
}

/** A program's name with the first version number that it prints. */
export function versionOf(name, program, option) {
  const { stdout, stderr } = spawnSync(findProgram(program), [option], { encoding: 'utf8' })
  return `${name} ${/\d+(?:\.\d+)+/.exec(`${stdout}${stderr}`)?.[0] ?? 'of unknown version'}`
}

/**
 * CPU time in microseconds of a process and its children, by the scheduler: `stat` counts in hundredths of a second. Of
 * threads that live.
 */
export function cpuOf(pid) {
  return sum(pid, (each) =>
    readdirSync(`/proc/${each}/task`).reduce((total, thread) => {
      const [nanoseconds] = readFileSync(`/proc/${each}/task/${thread}/schedstat`, 'latin1').split(' ')
      return total + Number(nanoseconds) / 1_000
    }, 0),
  )
}

/** Resident bytes of a process and its children: `VmRSS` now, `VmHWM` at most so far. */
export function memoryOf(pid, field = 'VmRSS') {
  return sum(pid, (each) => {
    const status = readFileSync(`/proc/${each}/status`, 'latin1')
    return Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0) * 1_024
  })
}

function sum(pid, read) {
  return treeOf(pid).reduce((total, each) => total + read(each), 0)
}

function treeOf(pid) {
  const children = readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/children`, 'latin1').split(' ').filter(Boolean),
  )
  return [pid, ...children.flatMap((child) => treeOf(Number(child)))]
}

function allowedCores() {
  const list = /^Cpus_allowed_list:\s+(\S+)/m.exec(readFileSync('/proc/self/status', 'latin1'))[1]
  return list.split(',').flatMap((part) => {
    const [first, last = first] = part.split('-').map(Number)
    return Array.from({ length: last - first + 1 }, (_, at) => first + at)
  })
}
