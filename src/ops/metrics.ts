import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client'
import { SESSION_FLOWS } from '../config/variables.ts'
import type { TokenOutcome } from '../oauth/token-response.ts'
import { droppedLines } from '../stdout.ts'
import {
  DEVICE_REFRESHES,
  type DeviceRefresh,
  END_REASONS,
  type Gauges,
  type RefreshTrigger,
  type VaultEvents,
  type WriteKind,
} from '../vault/vault.ts'
import { REVISION, VERSION } from '../version.ts'
import { createHistogram } from './histogram.ts'

interface Metrics extends VaultEvents {
  signedIn(flow: string): void
  signInFailed(reason: (typeof SIGN_IN_FAILURES)[number]): void
  bound(): void
  deviceRefreshed(outcome: DeviceRefresh): void
  request(labels: { route: string; method: string; status: number }, seconds: number): void
  upstream(operation: string, status: number, seconds: number): void
  store(command: string, seconds: number): void
  /** Gives the gauges their sources. */
  watch(sources: Gauges): void
  text(): Promise<string>
  readonly contentType: string
}

/** The values of a label, of which none is missing. */
function valuesOf<Value extends string>(values: Readonly<Record<Value, true>>): readonly Value[] {
  return Object.keys(values) as Value[]
}

const REFRESH_TRIGGERS = valuesOf<RefreshTrigger>({ request: true, schedule: true, invalid_token: true })
const TOKEN_OUTCOMES = valuesOf<TokenOutcome['kind']>({
  granted: true,
  refused: true,
  unavailable: true,
  in_doubt: true,
})
const WRITE_KINDS = valuesOf<WriteKind>({ tokens: true, lease: true, end: true })
const SIGN_IN_FAILURES = [
  'refused',
  'server_error',
  'login_failed',
  'unavailable',
  'store',
  'rate_limited',
] as const

/** The upper buckets are minutes: such a lag should raise an alarm. */
const LAG_BUCKETS = [0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600]
const FAST_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]

/** The metrics of this process under their documented names. Labels hold no ids. */
export function createMetrics(): Metrics {
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry })

  const histogram = (name: string, help: string, labelNames: readonly string[], buckets = FAST_BUCKETS) =>
    createHistogram({ name, help, labelNames, buckets, registry })
  /** Each series is there from the start: `rate` and `increase` miss the event that creates one. */
  const counter = <Label extends string>(
    name: string,
    help: string,
    labels: Readonly<Record<Label, readonly string[]>>,
  ): Counter<Label> => {
    const created = new Counter({ name, help, labelNames: Object.keys(labels) as Label[], registers })
    for (const values of everyCombination(labels)) created.inc(values, 0)
    return created
  }

  const requests = histogram('bff_http_request_duration_seconds', 'Requests of browsers', [
    'route',
    'method',
    'status',
  ])
  const upstream = histogram('bff_upstream_duration_seconds', 'Calls to the resource server', [
    'operation',
    'status',
  ])
  const started = counter('bff_sessions_started_total', 'Sessions started', { flow: SESSION_FLOWS })
  const signInFailures = counter('bff_sign_in_failures_total', 'Sign-ins that failed', {
    reason: SIGN_IN_FAILURES,
  })
  new Gauge({
    name: 'bff_build_info',
    help: 'The running version',
    labelNames: ['version', 'revision', 'node'],
    registers,
  }).set({ version: VERSION, revision: REVISION, node: process.version }, 1)
  const ended = counter('bff_sessions_ended_total', 'Sessions ended', { reason: END_REASONS })
  const refreshes = counter('bff_refresh_total', 'Refreshes of tokens', {
    trigger: REFRESH_TRIGGERS,
    outcome: TOKEN_OUTCOMES,
  })
  const bound = counter('bff_sessions_bound_total', 'Sessions that were bound to a device', {})
  const deviceRefreshes = counter('bff_device_refresh_total', 'Requests for a new device cookie', {
    outcome: DEVICE_REFRESHES,
  })
  const refreshSeconds = histogram('bff_refresh_duration_seconds', 'Token requests of refreshes', [
    'trigger',
    'outcome',
  ])
  const lag = histogram(
    'bff_refresh_lag_seconds',
    'Start of background refreshes after they were due',
    [],
    LAG_BUCKETS,
  )
  const lookUps = { hit: 0, revalidated: 0, miss: 0 }
  new Counter({
    name: 'bff_session_cache_total',
    help: 'Look-ups of sessions in the process',
    labelNames: ['result'],
    registers,
    // Each request makes a look-up, so a plain number counts them until a scrape.
    collect() {
      this.reset()
      for (const [result, count] of Object.entries(lookUps)) this.inc({ result }, count)
    },
  })
  new Counter({
    name: 'bff_log_lines_dropped_total',
    help: 'Log lines that nothing read',
    registers,
    collect() {
      this.reset()
      this.inc(droppedLines())
    },
  })
  const commands = histogram('bff_store_duration_seconds', 'Commands to the session store', ['command'])
  const retries = counter('bff_store_retries_total', 'Repeated steps that the store had not taken', {
    step: WRITE_KINDS,
  })
  const restored = counter(
    'bff_store_restored_total',
    'Writes that the store had lost, as by a failover, and that were made again',
    { what: ['tokens', 'end'] },
  )

  function watch({ unsaved, consecutiveFailures, due, takesWrites }: Gauges): void {
    type Read = () => number | null | Promise<number | null>
    const gauge = (name: string, help: string, read: Read): void => {
      new Gauge({
        name,
        help,
        registers,
        async collect() {
          this.set((await read()) ?? Number.NaN)
        },
      })
    }
    gauge('bff_refresh_due', 'Sessions in the queue for background refresh, over all replicas', due)
    gauge('bff_refresh_consecutive_failures', 'Token requests that failed in a row', consecutiveFailures)
    gauge('bff_refresh_unsaved', 'Refreshed tokens that the store has not taken yet', unsaved)
    gauge('bff_store_up', 'Whether the store takes a write now', async () => ((await takesWrites()) ? 1 : 0))
  }

  return {
    request: ({ route, method, status }, seconds) => requests(seconds, route, method, status),
    upstream: (operation, status, seconds) => upstream(seconds, operation, status),
    store: (command, seconds) => commands(seconds, command),
    cache(result) {
      lookUps[result] += 1
    },
    refreshed(trigger, outcome, seconds) {
      refreshes.inc({ trigger, outcome })
      refreshSeconds(seconds, trigger, outcome)
    },
    lagged: lag,
    signInFailed: (reason) => signInFailures.inc({ reason }),
    signedIn: (flow) => started.inc({ flow }),
    ended: (reason) => ended.inc({ reason }),
    bound: () => bound.inc(),
    deviceRefreshed: (outcome) => deviceRefreshes.inc({ outcome }),
    retried: (step) => retries.inc({ step }),
    restored: (what) => restored.inc({ what }),
    watch,
    text: () => registry.metrics(),
    contentType: registry.contentType,
  }
}

/** Every combination of values of these labels. */
function everyCombination<Label extends string>(
  labels: Readonly<Record<Label, readonly string[]>>,
): Record<Label, string>[] {
  let all = [{} as Record<Label, string>]
  for (const [label, values] of Object.entries<readonly string[]>(labels))
    all = all.flatMap((known) => values.map((value) => ({ ...known, [label]: value })))
  return all
}
