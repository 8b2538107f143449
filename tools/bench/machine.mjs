// Facts about the machine, the assignment of cores, and the resource usage of processes.
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { cpus, release, totalmem, type } from 'node:os'
import { findProgram } from './places.mjs'

const taskset = findProgram('taskset')
const allowed = allowedCores()
const chrt = findProgram('chrt')
const FIRST = ['--fifo', '1']
const mayBeFirst = chrt !== null && spawnSync(chrt, [...FIRST, 'true']).status === 0

/** Core lists for taskset: `server` has its own core. null if pinning is impossible. */
export const CORES =
  taskset === null || allowed.length < 2
    ? null
    : {
        server: String(allowed[1]),
        load: allowed.filter((_, at) => at !== 1).join(','),
      }

/** The command line that runs a program on the cores of `which`: 'server' or 'load'. */
export function pinned(which, command, args) {
  return CORES === null ? [command, args] : [taskset, ['-c', CORES[which], command, ...args]]
}

/**
 * The same on the cores of the load, before everything else there, where the user may have that (root): a load
 * generator that waits for the resource server on its core measures its own wait.
 */
export function pinnedFirst(command, args) {
  return pinned('load', ...(mayBeFirst ? [chrt, [...FIRST, command, ...args]] : [command, args]))
}

/** Pins this process to the cores of the load generator. */
export function moveToLoad() {
  if (CORES !== null) spawnSync(taskset, ['-a', '-p', '-c', CORES.load, String(process.pid)])
}

export function describeMachine() {
  const model = cpus()[0]?.model.trim() ?? 'unknown'
  const gigabytes = Math.round(totalmem() / 2 ** 30)
  const pinning = CORES === null ? 'nothing pinned' : 'server under test and load on different cores'
  return `${cpus().length} cores (${model}), ${gigabytes} GB, ${type()} ${release().split('.', 2).join('.')}; ${pinning}`
}

/** The first version number that a program prints, or null if it is not installed. */
export function versionOf(program, args) {
  const path = findProgram(program)
  if (path === null) return null
  const { stdout, stderr } = spawnSync(path, args, { encoding: 'utf8' })
  return /\d+(?:\.\d+)+/.exec(`${stdout}${stderr}`)?.[0] ?? null
}

// Linux counts in hundredths of a second for programs, whatever the kernel's own tick is.
const TICK_MICROSECONDS = 10_000

/** CPU time in microseconds of a process and its children; null without /proc. */
export function cpuOf(pid) {
  return sum(pid, (each) => {
    const stat = readFileSync(`/proc/${each}/stat`, 'latin1')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return (Number(fields[11]) + Number(fields[12])) * TICK_MICROSECONDS
  })
}

/** Peak resident size in bytes, as the kernel tells it, summed over a process and its children. */
export function peakOf(pid) {
  return sum(pid, (each) => {
    const status = readFileSync(`/proc/${each}/status`, 'latin1')
    return Number(/^VmHWM:\s+(\d+)/m.exec(status)?.[1] ?? 0) * 1_024
  })
}

function sum(pid, read) {
  try {
    return treeOf(pid).reduce((total, each) => total + read(each), 0)
  } catch {
    return null
  }
}

function treeOf(pid) {
  const children = readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/children`, 'latin1').split(' ').filter(Boolean),
  )
  return [pid, ...children.flatMap((child) => treeOf(Number(child)))]
}

function allowedCores() {
  try {
    const list = /^Cpus_allowed_list:\s+(\S+)/m.exec(readFileSync('/proc/self/status', 'latin1'))[1]
    return list.split(',').flatMap((part) => {
      const [first, last = first] = part.split('-').map(Number)
      return Array.from({ length: last - first + 1 }, (_, at) => first + at)
    })
  } catch {
    return []
  }
}
