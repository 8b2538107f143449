import type { Config } from '../src/config/config.ts'
import { CLOCK_TOLERANCE_MS, inspectRedis, NO_WRITES } from '../src/vault/vault.ts'
import { type Finding, fault, ok, warning } from './report.ts'

/** Checks of the session store, and by how many milliseconds this clock is ahead of Redis'; null when unknown. */
interface RedisChecks {
  readonly verdicts: readonly Finding[]
  readonly clockAheadMs: number | null
}

const TOPOLOGY = { single: 'one server', sentinel: 'Sentinel', cluster: 'Cluster' } as const

/** Connects to the store of the configuration and leaves nothing in it. */
export async function checkRedis(store: Config['store']): Promise<RedisChecks> {
  if (store.kind === 'memory') {
    const message = 'SESSION_STORE=memory: sessions are in one process and are lost when it stops'
    return { verdicts: [ok('Redis', message)], clockAheadMs: null }
  }
  const found = await inspectRedis(store)
  if (found.kind !== 'reached') {
    const message =
      found.kind === 'refused'
        ? `Redis refused the credentials or the database (${found.reason}): check the user, the password and the database in REDIS_URL`
        : `Redis cannot be reached (${found.reason}): check REDIS_URL and that Redis runs; with TLS check REDIS_CA_FILE and the host names in the certificate`
    return { verdicts: [fault('Redis', message)], clockAheadMs: null }
  }
  const { nodes, failures } = found
  const verdicts = [
    reached(TOPOLOGY[store.target.kind], nodes),
    ...tooOld(nodes),
    eviction(nodes.map((node) => node.eviction)),
    rights(failures, store.prefix),
  ]
  const clocks = nodes.flatMap((node) => (node.clockAheadMs === null ? [] : [node.clockAheadMs]))
  clocks.sort((one, other) => Math.abs(other) - Math.abs(one))
  return { verdicts, clockAheadMs: clocks[0] ?? null }
}

type Nodes = Extract<Awaited<ReturnType<typeof inspectRedis>>, { kind: 'reached' }>['nodes']

function reached(topology: string, nodes: Nodes): Finding {
  const versions = [...new Set(nodes.map(({ product }) => nameOf(product)))].join(', ')
  const masters = nodes.length > 1 ? ` of ${nodes.length} masters` : ''
  const persistent = nodes.every(({ appendOnly }) => appendOnly === true)
  const unknown = nodes.some(({ appendOnly }) => appendOnly === null)
  const kept = unknown
    ? 'persistence unknown'
    : persistent
      ? 'AOF on'
      : 'AOF off: a restart of Redis may sign users out'
  return ok('Redis', `${topology}${masters}, ${versions}, ${kept}`)
}

function nameOf(product: Nodes[number]['product']): string {
  return product === null ? 'unknown version' : `${product.name} ${product.version}`
}

/** Redis 6.0 has no ACL for channels, so that the documented rights cannot be given. Every Valkey is newer. */
const LEAST = [6, 2] as const

function tooOld(nodes: Nodes): Finding[] {
  const old = nodes.flatMap(({ product }) =>
    product?.name === 'Redis' && isOld(product.version) ? [product] : [],
  )
  if (old.length === 0) return []
  const names = [...new Set(old.map(nameOf))].join(', ')
  return [
    fault(
      'version',
      `${names} is older than Redis ${LEAST.join('.')}, the first that this server supports: update it`,
    ),
  ]
}

function isOld(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  return major < LEAST[0] || (major === LEAST[0] && minor < LEAST[1])
}

function eviction(policies: readonly (string | null)[]): Finding {
  const wrong = policies.find((policy) => policy !== null && policy !== 'noeviction')
  if (wrong) {
    return fault(
      'eviction',
      `the Redis of REDIS_URL has maxmemory-policy ${wrong}, which deletes sessions when memory is short: set noeviction`,
    )
  }
  return policies.includes(null)
    ? warning(
        'eviction',
        'maxmemory-policy is unknown, because INFO is not permitted: make sure it is noeviction',
      )
    : ok('eviction', 'noeviction')
}

function rights(failures: readonly string[], prefix: string): Finding {
  if (failures.length === 0) return ok('rights', `may read and write below ${prefix}`)
  const missing = [...new Set(failures.map((text) => remedy(text, prefix)))]
  return fault('rights', missing.join('; '))
}

/** What to do about an error of Redis. ACL errors differ between versions and inside scripts. */
function remedy(text: string, prefix: string): string {
  if (!/NOPERM|ACL failure|permission|user executing the script/i.test(text))
    return NO_WRITES.test(text)
      ? `Redis takes no writes (${text}): give it memory or disk space, or lead REDIS_URL to its master`
      : `Redis could not do a step (${text}): check REDIS_URL`
  const user = 'the user of REDIS_URL'
  if (/\bkeys?\b/i.test(text)) return `${user} may not use keys below ${prefix}: add ~${prefix}* to its ACL`
  const command = /run the '([a-z|_-]+)'/i.exec(text)?.[1]?.toLowerCase()
  return command === undefined
    ? `${user} lacks a permission (${text})`
    : `${user} may not run ${command.toUpperCase()}: add +${command} to its ACL`
}

/** One finding over all clocks that could be read; null entries are unknown. `silent`: it answered without a `Date`. */
export function checkClocks(
  clocks: readonly { of: string; aheadMs: number | null; silent?: boolean }[],
): Finding {
  const known = clocks.flatMap(({ of, aheadMs }) => (aheadMs === null ? [] : [{ of, aheadMs }]))
  if (known.length === 0) return warning('clocks', 'no clock could be compared')
  const unseen = clocks
    .filter(({ silent }) => silent)
    .map(({ of }) => `; ${of} sends no Date, so its clock was not seen`)
  const text = known.map(({ of, aheadMs }) => describeClock(of, aheadMs)).join(', ') + unseen.join('')
  return known.some(({ aheadMs }) => Math.abs(aheadMs) > CLOCK_TOLERANCE_MS)
    ? fault(
        'clocks',
        `this machine is ${text}: synchronise the clocks (NTP); see REDIS_URL and AUTH_URL for the hosts`,
      )
    : ok('clocks', `this machine is ${text}`)
}

function describeClock(of: string, aheadMs: number): string {
  const seconds = (Math.abs(aheadMs) / 1_000).toFixed(1)
  return `${seconds} s ${aheadMs < 0 ? 'behind' : 'ahead of'} ${of}`
}
