// The conditions of a run: machine, versions, rounds.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describeMachine, versionOf } from '../machine.mjs'
import { BENCH, ROOT } from '../places.mjs'

const PROGRAMS = {
  wrk: ['wrk', ['-v']],
  Redis: ['redis-server', ['--version']],
  nginx: ['nginx', ['-v']],
  Apache: ['apache2', ['-v']],
}

/** The date, the machine and the versions of all programs that a run used: two Markdown list items. */
export function machineLines({ kind, candidates }) {
  const names = ['Redis', ...(kind === 'wrk' ? ['wrk'] : [])]
  for (const { name } of candidates) {
    if (name === 'nginx') names.push('nginx')
    if (name === 'apache') names.push('Apache')
  }
  const peers = candidates.some(({ needsPeers }) => needsPeers) ? peerVersions() : []
  return [
    `- ${today()}; ${describeMachine()}`,
    `- Node ${process.versions.node}; ${[...names.map(nameAndVersion), ...peers].join(', ')}`,
  ].join('\n')
}

/** The same, and how a run loaded the candidates. */
export function conditions({ options, kind, candidates }) {
  const { rounds, seconds, warmupSeconds, sessions } = options
  return [
    machineLines({ kind, candidates }),
    `- ${rounds} rounds, each candidate in a new process in each: ${warmupSeconds} s to warm up, then ${seconds} s, both in turns with others; ` +
      `${sessions} browsers in rotation; load: ${kind === 'wrk' ? 'wrk, one thread' : 'tools/bench/load/sockets.mjs'}; every response was checked`,
  ].join('\n')
}

/** The lines at the top of a section from another run. */
export function whenAndWhere() {
  return `- ${today()}; ${describeMachine()}\n- Node ${process.versions.node}; ${nameAndVersion('Redis')}, ${packageVersion(ROOT, 'undici')}, ${packageVersion(ROOT, 'openid-client')}, ${packageVersion(ROOT, 'ioredis')}`
}

function nameAndVersion(name) {
  return `${name} ${versionOf(...PROGRAMS[name]) ?? 'of unknown version'}`
}

function peerVersions() {
  const { dependencies } = JSON.parse(readFileSync(join(BENCH, 'package.json'), 'utf8'))
  return Object.entries(dependencies).map(([name, version]) => `${name} ${version}`)
}

function packageVersion(root, name) {
  return `${name} ${JSON.parse(readFileSync(join(root, 'node_modules', name, 'package.json'), 'utf8')).version}`
}

function today() {
  return new Date().toISOString().slice(0, 10)
}
