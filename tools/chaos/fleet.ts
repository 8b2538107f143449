import type { Teardown } from '../../test/helpers/child.ts'
import { type Env, type ServerProcess, startServer } from '../../test/helpers/server-process.ts'
import type { Clock, History, ProcessEvent } from './history.ts'

/** One server process and its successors. */
export interface Replica {
  readonly index: number
  /** Of the process that runs now. */
  url(): string
  /** Whether it listens and is not stopping, so that a load balancer sends calls to it. */
  isUp(): boolean
  isFrozen(): boolean
  freeze(): void
  resume(): void
  /** Resolves at the end of the process. */
  kill(): Promise<void>
  /** Stops it with SIGTERM. Resolves at its end. */
  stop(): Promise<void>
  /** Starts its successor. Resolves when that listens. */
  start(): Promise<void>
}

/** What looks like a token, a code or the value of a session cookie. */
const TOKEN_OR_COOKIE = /(?:at|rt|code)-[A-Za-z0-9_-]{43}|[A-Za-z0-9_-]{43}\.[A-Za-z0-9_-]{43}/

/** Starts so many server processes. Resolves when each listens. `readLogs` takes their logs over into the history. */
export async function startFleet(
  t: Teardown,
  options: {
    count: number
    /** Environment of a replica. */
    envOf: (replica: number) => Env
    /** Texts that must not be in any log line. */
    secrets: readonly string[]
    history: History
    clock: Clock
  },
): Promise<{ replicas: readonly Replica[]; readLogs: () => void }> {
  const { history, clock } = options
  const processes: { replica: number; server: ServerProcess }[] = []

  function finding(what: string, detail: string): void {
    history.findings.push({ at: clock(), what, detail })
  }

  async function createReplica(index: number): Promise<Replica> {
    let server: ServerProcess | null = null
    let frozen = false
    let isEnding = false

    function note(what: ProcessEvent['what'], code: number | null = null): void {
      history.processes.push({ at: clock(), replica: index, what, code })
    }

    async function start(): Promise<void> {
      const started = await startServer(t, options.envOf(index))
      processes.push({ replica: index, server: started })
      note('started')
      server = started
      frozen = isEnding = false
      void started.ended.then(({ code, signal }) => {
        server = null
        note('exited', code)
        if (!isEnding) finding('a process that died by itself', `replica ${index}: ${code ?? signal}`)
      })
    }

    async function end(what: 'killed' | 'terminated'): Promise<void> {
      if (server === null) return
      const { ended } = server
      isEnding = true
      note(what)
      await server.stop(what === 'killed' ? 'SIGKILL' : 'SIGTERM')
      await ended
    }

    await start()
    return {
      index,
      url: () => server?.url ?? '',
      isUp: () => server !== null && !isEnding,
      isFrozen: () => frozen,
      freeze() {
        frozen = true
        note('frozen')
        server?.send('SIGSTOP')
      },
      resume() {
        if (!frozen) return
        server?.send('SIGCONT')
        frozen = false
        note('resumed')
      },
      kill: () => end('killed'),
      stop: () => end('terminated'),
      start,
    }
  }

  function readLogs(): void {
    const wallAtStart = Date.now() - clock()
    for (const { replica, server } of processes) {
      for (const line of server.logs()) {
        const text = JSON.stringify(line)
        const loggedAt = Date.parse(String(line.time)) - wallAtStart
        if (Number.isNaN(loggedAt)) finding('a log line that is not JSON', `replica ${replica}: ${text}`)
        else history.logs.push({ at: loggedAt, replica, text: text.slice(0, 600) })
        if (TOKEN_OR_COOKIE.test(text) || options.secrets.some((secret) => text.includes(secret)))
          finding('a secret in a log', `replica ${replica}: a line of ${text.length} characters`)
        if (line.event === 'crash' || line.level === 'fatal')
          finding('a fault that the server did not expect', `replica ${replica}: ${text.slice(0, 1_000)}`)
      }
    }
  }

  const replicas: Replica[] = []
  for (let index = 0; index < options.count; index += 1) replicas.push(await createReplica(index))
  return { replicas, readLogs }
}
