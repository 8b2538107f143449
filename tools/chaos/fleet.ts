import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { freePort } from '../../test/helpers/ports.ts'
import { elapsed } from '../../test/helpers/wait.ts'
import { guard } from '../../test/helpers/watchdog.ts'
import { type Clock, type History, type ProcessEvent, TOKEN_OR_COOKIE } from './history.ts'
import { MAX_MEMORY_BYTES, SHUTDOWN_SECONDS } from './settings.ts'

/** One server process and its successors on the same ports. */
export interface Replica {
  readonly index: number
  readonly url: string
  /** Whether it listens and is not stopping, so that a load balancer sends calls to it. */
  isUp(): boolean
  isFrozen(): boolean
  /** Kills it with SIGKILL. Resolves at its end. */
  kill(): Promise<void>
  freeze(): void
  resume(): void
  /** Stops it with SIGTERM. Resolves at its end; a wrong exit code or duration becomes a finding. */
  stop(): Promise<void>
  /** Starts it again, with the newest secrets. Resolves when it listens. */
  start(): Promise<void>
}

/** All server processes. */
export interface Fleet {
  readonly replicas: readonly Replica[]
  /** Starts each replica that is not up. */
  startAll(): Promise<void>
  /** Reads the memory of each process. Too much becomes a finding. */
  measure(): Promise<{ megabytes: number }>
  /** Requests `/livez` of each process that was not frozen, and records slow responses. */
  probe(): Promise<void>
  /** The secrets of the next start, newest first. */
  setSecrets(secrets: readonly string[]): void
  secrets(): readonly string[]
  close(): Promise<void>
}

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url))
const START_MS = 60_000
/** A slower response of `/livez` is recorded. */
const LONG_MS = 300
const KEPT_LOG_LINES = 20_000

/** Starts so many processes. Resolves when each listens. */
export async function startFleet({
  count,
  envOf,
  history,
  clock,
  firstSecret,
  isSecret,
  plainSecrets,
}: {
  count: number
  /** Environment of a replica, apart from its ports and `SESSION_SECRET`. */
  envOf: (replica: number) => Record<string, string>
  history: History
  clock: Clock
  firstSecret: string
  /** Whether this text is a token or cookie that was issued. */
  isSecret: (text: string) => boolean
  /** Texts that must not be in any log line. */
  plainSecrets: readonly string[]
}): Promise<Fleet> {
  let secrets: readonly string[] = [firstSecret]

  function note(
    replica: number,
    what: ProcessEvent['what'],
    { code = null, expected = true }: { code?: number | null; expected?: boolean } = {},
  ): void {
    history.processes.push({ at: clock(), replica, what, code, expected })
  }

  function finding(what: string, detail: string): void {
    history.findings.push({ at: clock(), what, detail })
  }

  function readLine(replica: number, line: string): void {
    const at = clock()
    history.logs.push({ at, replica, text: line.length > 600 ? `${line.slice(0, 600)}…` : line })
    if (history.logs.length > KEPT_LOG_LINES) history.logs.splice(0, KEPT_LOG_LINES / 10)
    const found =
      [...line.matchAll(TOKEN_OR_COOKIE)].some(([text]) => isSecret(text)) ||
      [...plainSecrets, ...secrets].some((secret) => line.includes(secret))
    if (found) finding('a secret in a log', `replica ${replica}: a line of ${line.length} characters`)
    if (line.includes('"event":"crash"') || line.includes('"level":"fatal"')) {
      finding('a fault that the server did not expect', `replica ${replica}: ${line.slice(0, 1_000)}`)
    }
    if (!line.startsWith('{'))
      finding('a log line that is not JSON', `replica ${replica}: ${line.slice(0, 300)}`)
  }

  function wasFrozen(replica: number, since: number): boolean {
    return history.processes.some(
      (event) => event.replica === replica && event.what === 'frozen' && event.at >= since,
    )
  }

  async function createReplica(index: number): Promise<Replica & { end(): Promise<void>; opsUrl: string }> {
    const port = await freePort()
    const opsPort = await freePort()
    let child: ChildProcess | null = null
    let gone: Promise<void> = Promise.resolve()
    let frozen = false
    let listens = false
    let starting: Promise<void> | null = null
    let ending: 'killed' | 'terminated' | null = null

    function start(): Promise<void> {
      starting ??= tryToStart().finally(() => {
        starting = null
      })
      return starting
    }

    async function tryToStart(): Promise<void> {
      for (let attempt = 0; child === null && attempt < 10; attempt += 1) {
        if (await tryStart()) return
        await elapsed(500)
      }
      if (child === null) finding('a replica that does not start', `replica ${index}`)
    }

    /** False: the port was taken meanwhile. */
    async function tryStart(): Promise<boolean> {
      const env = {
        PATH: process.env.PATH ?? '',
        ...envOf(index),
        ...{ PORT: String(port), OPS_PORT: String(opsPort), SESSION_SECRET: secrets.join(',') },
      }
      const started = spawn(process.execPath, [MAIN], { env, stdio: ['ignore', 'pipe', 'pipe'] })
      guard(started)
      child = started
      frozen = false
      ending = null
      let portTaken = false
      note(index, 'started')
      const listening = new Promise<boolean>((resolve) => {
        const timer = setTimeout(() => {
          finding('a start that takes too long', `replica ${index} did not listen within ${START_MS} ms`)
          resolve(true)
        }, START_MS)
        const settle = (ok: boolean): void => {
          clearTimeout(timer)
          resolve(ok)
        }
        createInterface({ input: started.stdout! }).on('line', (line) => {
          readLine(index, line)
          if (!line.includes('"event":"listening"')) return
          listens = true
          note(index, 'ready')
          settle(true)
        })
        createInterface({ input: started.stderr! }).on('line', (line) => {
          if (/EADDRINUSE|in use by another process/.test(line)) portTaken = true
          else readLine(index, line)
        })
        started.once('exit', () => settle(!portTaken))
      })
      gone = new Promise((resolve) => {
        started.once('exit', (code, signal) => {
          child = null
          listens = false
          const expected = ending !== null || portTaken
          note(index, 'exited', { code, expected })
          if (!expected)
            finding('a process that died by itself', `replica ${index}: code ${code}, signal ${signal}`)
          resolve()
        })
      })
      return await listening
    }

    async function stop(): Promise<void> {
      if (child === null) return
      const beganAt = clock()
      ending = 'terminated'
      note(index, 'terminated')
      child.kill('SIGTERM')
      const limit = new Promise<'late'>((resolve) => {
        setTimeout(resolve, SHUTDOWN_SECONDS * 1_000 + 5_000, 'late' as const).unref()
      })
      if ((await Promise.race([gone, limit])) === 'late') {
        finding(
          'a stop that does not end',
          `replica ${index}: ${Math.round(clock() - beganAt)} ms after SIGTERM`,
        )
        child?.kill('SIGKILL')
        await gone
      }
    }

    return {
      index,
      url: `http://127.0.0.1:${port}`,
      opsUrl: `http://127.0.0.1:${opsPort}`,
      isUp: () => listens && ending === null,
      isFrozen: () => frozen,
      async kill() {
        if (child === null) return
        ending = 'killed'
        note(index, 'killed')
        child.kill('SIGKILL')
        await gone
      },
      freeze() {
        if (child === null || frozen) return
        frozen = true
        note(index, 'frozen')
        child.kill('SIGSTOP')
      },
      resume() {
        if (child === null || !frozen) return
        child.kill('SIGCONT')
        frozen = false
        note(index, 'resumed')
      },
      stop,
      start,
      async end() {
        if (child === null) return
        ending = 'killed'
        child.kill('SIGCONT')
        child.kill('SIGKILL')
        await gone
      },
    }
  }

  const replicas: Awaited<ReturnType<typeof createReplica>>[] = []
  for (let index = 0; index < count; index += 1) replicas.push(await createReplica(index))
  const startAll = async (): Promise<void> => {
    await Promise.all(replicas.filter((replica) => !replica.isUp()).map((replica) => replica.start()))
  }
  await startAll()

  return {
    replicas,
    startAll,
    async measure() {
      let most = 0
      for (const replica of replicas) {
        if (!replica.isUp() || replica.isFrozen()) continue
        const signal = AbortSignal.timeout(2_000)
        const text = await fetch(`${replica.opsUrl}/metrics`, { signal })
          .then((response) => response.text())
          .catch(() => '')
        const bytes = Number(/^process_resident_memory_bytes (\S+)$/m.exec(text)?.[1] ?? 0)
        most = Math.max(most, bytes)
        if (bytes > MAX_MEMORY_BYTES) {
          finding('too much memory', `replica ${replica.index}: ${Math.round(bytes / 1_048_576)} MB`)
        }
      }
      return { megabytes: most / 1_048_576 }
    },
    async probe() {
      const asked = replicas.filter((replica) => replica.isUp() && !replica.isFrozen())
      await Promise.all(
        asked.map(async (replica) => {
          const beganAt = clock()
          const signal = AbortSignal.timeout(10_000)
          await fetch(`${replica.opsUrl}/livez`, { signal }).then(
            (response) => response.text(),
            () => {},
          )
          const ms = clock() - beganAt
          if (ms < LONG_MS || !replica.isUp() || wasFrozen(replica.index, beganAt)) return
          history.delays.push({ at: clock(), replica: replica.index, ms })
        }),
      )
    },
    setSecrets(next) {
      secrets = next
    },
    secrets: () => secrets,
    async close() {
      await Promise.all(replicas.map((replica) => replica.end()))
    },
  }
}
