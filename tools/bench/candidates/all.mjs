import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { BENCH, findProgram, PEERS } from '../places.mjs'
import { apache } from './apache.mjs'
import { nginx, nginxTuned } from './nginx.mjs'
import { bare, bareFastify, bareFields, expressOidc, fastifySession, replyFrom } from './node-servers.mjs'
import { ours, oursAgain, oursLogged, oursTraced, oursUncached } from './ours.mjs'

/** In the order of the table. */
export const CANDIDATES = [
  ours,
  oursAgain,
  oursUncached,
  oursLogged,
  oursTraced,
  bare,
  bareFields,
  bareFastify,
  replyFrom,
  fastifySession,
  expressOidc,
  nginx,
  nginxTuned,
  apache,
]

/** The candidates of these names that can run here, the packages that they need installed. */
export function installedOf(names, say) {
  const wanted = CANDIDATES.filter(({ name }) => names.includes(name))
  for (const { name } of wanted.filter((each) => !isInstalled(each)))
    say(`${name} is not installed: left out`)
  const candidates = wanted.filter(isInstalled)
  if (candidates.some(({ needsPeers }) => needsPeers) && !existsSync(PEERS)) installPeers(say)
  return candidates
}

function isInstalled({ program, isThere }) {
  return (program === undefined || findProgram(program) !== null) && (isThere === undefined || isThere())
}

function installPeers(say) {
  say('installing the other servers into tools/bench/node_modules')
  const { status } = spawnSync('npm', ['ci', '--prefix', BENCH, '--no-audit', '--no-fund'], {
    stdio: ['ignore', 2, 2],
  })
  if (status !== 0) throw new Error('npm ci --prefix tools/bench failed')
}
