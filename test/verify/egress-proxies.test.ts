import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { examine } from '../../operator/examine.ts'
import { startChild, toolPath } from '../helpers/child.ts'
import { accepts, freePort, portOfUrl } from '../helpers/ports.ts'
import { serves } from '../helpers/serves.ts'
import { platformEnv, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { SESSION_SECRET } from '../operator/run.ts'
import { findTool } from '../setup/tools.mjs'

type Program = 'squid' | 'tinyproxy'

/** Starts a proxy with these lines of configuration. Returns its port. */
async function startProxy(t: Test, name: Program, linesFor: (port: number, folder: string) => string[]) {
  const folder = makeFolder(name)
  // squid gives its rights away.
  chmodSync(folder, 0o777)
  const port = await freePort()
  const file = join(folder, 'configuration')
  writeFileSync(file, `${linesFor(port, folder).join('\n')}\n`)
  const args = name === 'squid' ? ['-N', '-f', file] : ['-d', '-c', file]
  const child = startChild(t, toolPath(name), args, { cwd: folder })
  await until(`${name} listens`, async () => {
    if (child.hasEnded()) throw new Error(`${name} ended at its start:\n${child.output()}`)
    return await accepts(port)
  })
  return port
}

/** The rules of Debian's file; `ports`: those to which CONNECT is permitted besides 443. */
const squid =
  (...ports: number[]) =>
  (port: number, folder: string) => [
    ...['acl SSL_ports port 443', 'acl localnet src 127.0.0.0/8'],
    ...ports.map((each) => `acl SSL_ports port ${each}`),
    ...['http_access deny CONNECT !SSL_ports', 'http_access allow localnet', 'http_access deny all'],
    ...[`http_port 127.0.0.1:${port}`, `coredump_dir ${folder}`, 'shutdown_lifetime 0 seconds'],
    ...[
      `pid_filename ${folder}/pid`,
      `access_log none`,
      `cache_log ${folder}/cache.log`,
      'pinger_enable off',
    ],
  ]

const tinyproxy = (port: number, folder: string) => [
  ...[`Port ${port}`, 'Listen 127.0.0.1', 'Timeout 600', 'Allow 127.0.0.1', 'MaxClients 100'],
  ...['BasicAuth egress pa55w0rd', `LogFile "${folder}/log"`, `PidFile "${folder}/pid"`],
]

/** What the doctor says is broken. */
async function faultsOf(env: Record<string, string>): Promise<string[]> {
  const { findings } = await examine(env)
  return findings
    .filter(({ verdict }) => verdict === 'fault')
    .map(({ check, message }) => `${check}: ${message}`)
}

async function startSystem(t: Test) {
  const sandbox = await startSandbox(t)
  const env = (proxy: string) => ({
    ...platformEnv(sandbox),
    PUBLIC_URL: 'http://localhost:9',
    SESSION_SECRET,
    SESSION_STORE: 'memory',
    HTTP_PROXY: `http://${proxy}`,
  })
  const works = async (proxy: string): Promise<void> => {
    await serves(t, sandbox, { HTTP_PROXY: `http://${proxy}` })
    t.strictSame(await faultsOf(env(proxy)), [], 'the doctor agrees')
  }
  return { port: portOfUrl(sandbox.url), env, works }
}

const lacks = (name: Program) => findTool(name) === null && `${name} is not installed`

t.test(
  'squid, which permits CONNECT to port 443 alone by default: the doctor says so in one line',
  { skip: lacks('squid') },
  async (t) => {
    const { port, env, works } = await startSystem(t)
    const strict = await startProxy(t, 'squid', squid())
    const [fault = '', ...more] = await faultsOf(env(`127.0.0.1:${strict}`))
    t.strictSame(more, [])
    t.match(fault, `refused CONNECT 127.0.0.1:${port} with status 403`)
    t.match(fault, 'SSL_ports')
    await works(`127.0.0.1:${await startProxy(t, 'squid', squid(port))}`)
  },
)

t.test(
  'tinyproxy, which says 401 to a wrong password: the doctor names the password in one line',
  { skip: lacks('tinyproxy') },
  async (t) => {
    const { env, works } = await startSystem(t)
    const at = `127.0.0.1:${await startProxy(t, 'tinyproxy', tinyproxy)}`
    for (const [login, status] of [
      ['egress:wrong@', 401],
      ['', 407],
    ] as const) {
      const [fault = '', ...more] = await faultsOf(env(login + at))
      t.strictSame(more, [])
      t.match(fault, new RegExp(`status ${status}: check the user and the password in HTTP_PROXY`))
    }
    await works(`egress:pa55w0rd@${at}`)
  },
)
