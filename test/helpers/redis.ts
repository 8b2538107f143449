// A private redis-server for one test: start, stop, freeze, kill and restart.

import { readFile } from 'node:fs/promises'
import { type Certificate, createCertificate } from './certificate.ts'
import { type Child, startChild, type Teardown, toolPath, waitForOutput } from './child.ts'
import { freePort } from './ports.ts'
import { redisCommand } from './redis-command.ts'
import { makeFolder } from './watchdog.ts'

export interface RedisOptions {
  /** Additional arguments of redis-server, for example `DURABLE`. */
  readonly args?: readonly string[]
  /** TLS only, with this certificate or (`true`) a new one for localhost and 127.0.0.1, whose CA is in `caFile`. */
  readonly tls?: boolean | Certificate
  readonly password?: string
  /** A node of a Cluster, with a free port for its bus. By default that is 10,000 higher, where a connection may have it. */
  readonly cluster?: boolean
}

/** A private Redis of one test. */
export type RedisServer = Awaited<ReturnType<typeof startRedis>>

/** What has been acknowledged survives a kill of the process. The disk, which may be slow, is not waited for. */
export const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'no']

const ATTEMPTS = 5

/** Starts an empty private redis-server. It stops when the test ends. */
export async function startRedis(t: Teardown, options: RedisOptions = {}) {
  const folder = makeFolder('redis')
  const { tls = false, cluster = false } = options
  const certificate = tls === true ? await createCertificate(folder) : tls || null
  const ca = certificate === null ? undefined : await readFile(certificate.caFile)
  const passwordArgs = options.password === undefined ? [] : ['--requirepass', options.password]

  let busPort: number | null = null
  const argsFor = (port: number) => [
    ...['--bind', '127.0.0.1', '--dir', folder, '--save', ''],
    ...(certificate === null
      ? ['--port', String(port)]
      : [
          ...['--port', '0', '--tls-port', String(port), '--tls-auth-clients', 'no'],
          ...['--tls-cert-file', certificate.certFile, '--tls-key-file', certificate.keyFile],
          ...['--tls-ca-cert-file', certificate.caFile, '--tls-replication', 'yes'],
        ]),
    ...passwordArgs,
    ...(busPort === null ? [] : ['--cluster-enabled', 'yes', '--cluster-port', String(busPort)]),
    ...(options.args ?? []),
  ]

  let { child, port } = await startOnFreePort(t, async (port) => {
    if (cluster) busPort = await freePort()
    return argsFor(port)
  })
  const scheme = certificate === null ? 'redis' : 'rediss'
  const login = options.password === undefined ? '' : `:${encodeURIComponent(options.password)}@`

  return {
    port,
    /** With the password if there is one. */
    url: `${scheme}://${login}127.0.0.1:${port}`,
    /** Path of the CA certificate; null without TLS. */
    caFile: certificate?.caFile ?? null,
    get pid() {
      return child.pid
    },
    stop: () => child.stop(),
    kill: () => child.stop('SIGKILL'),
    /** Freezes it: connections stay open without replies. */
    pause: () => child.send('SIGSTOP'),
    resume: () => child.send('SIGCONT'),
    /** Starts it again on the same port and folder. Data is kept only with `DURABLE`. */
    async restart(): Promise<void> {
      if (!child.hasEnded()) throw new Error('stop this Redis before you start it again')
      const next = await tryStart(t, argsFor(port))
      if (next === null) throw new Error(`port ${port} was taken while Redis was down`)
      child = next
    },
    /** Sends one command. Returns the reply as redis-cli prints it; an error reply throws. */
    cli: (...args: string[]) => redisCommand(port, args, { ca, password: options.password }),
  }
}

/** Starts redis-server, or with `--sentinel` a Sentinel, on a free port. Retries with another port if the first was taken. */
export async function startOnFreePort(
  t: Teardown,
  argsFor: (port: number) => readonly string[] | Promise<readonly string[]>,
): Promise<{ child: Child; port: number }> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const port = await freePort()
    const child = await tryStart(t, await argsFor(port))
    if (child !== null) return { child, port }
  }
  throw new Error(`redis-server: no free port in ${ATTEMPTS} attempts`)
}

/** Returns null if the port is taken. Any other failure throws with the program's output. */
async function tryStart(t: Teardown, args: readonly string[]): Promise<Child | null> {
  const child = startChild(t, toolPath('redis-server'), args)
  // A Redis with data first loads it. A Sentinel prints a different line.
  const ready = await waitForOutput(child, (text) =>
    /Ready to accept connections|Sentinel ID is/.test(text) ? true : null,
  )
  if (ready !== null) return child
  if (/Address already in use/.test(child.output())) return null
  throw new Error(`redis-server ended at its start:\n${child.output()}`)
}
