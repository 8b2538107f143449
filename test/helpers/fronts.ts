// The reverse proxies of deploy/ as processes: the real programs with the real files, whose addresses and paths
// are replaced by those of a test.

import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { findTool } from '../setup/tools.mjs'
import { createCertificate } from './certificate.ts'
import { startChild, type Teardown, toolPath } from './child.ts'
import { accepts, freePort } from './ports.ts'
import { until } from './wait.ts'
import { makeFolder } from './watchdog.ts'

export const FRONTS = ['nginx', 'haproxy', 'caddy', 'apache', 'varnish'] as const
export type FrontName = (typeof FRONTS)[number]

/** What each needs besides itself: Varnish speaks no TLS. */
const NEEDS: Partial<Record<FrontName, 'hitch'>> = { varnish: 'hitch' }

const installed = FRONTS.filter((name) =>
  [name, NEEDS[name] ?? name].every((tool) => findTool(tool) !== null),
)

/** Why no proxy can be tested here at all; false where one can. */
export const LACKS_ADDRESSES =
  // Replicas and browsers have loopback addresses of their own, which other systems offer only after a set-up.
  process.platform !== 'linux' && 'needs the loopback addresses of Linux'

/** The same for those of deploy/. */
export const LACKS_FRONTS =
  LACKS_ADDRESSES || (installed.length === 0 && `none of ${FRONTS.join(', ')} is installed`)

/** Runs a test with each proxy that was asked for. Those that are not installed are skipped. */
export async function withEachFront(
  t: Test,
  fronts: Fronts,
  what: string,
  check: (t: Test, front: Front) => Promise<void>,
): Promise<void> {
  for (const [name, front] of fronts) {
    const skip = front === null && `${name} is not installed (Debian: the package ${name})`
    await t.test(`${name} ${what}`, { skip }, (t) => check(t, front!))
  }
}

/** What a proxy of a test leads to. */
export interface Behind {
  /** Certificate and key, at `<path>.crt`, `<path>.key` and together in `<path>.pem`. */
  readonly tls: string
  /** The replicas are 127.0.0.11, .12 and .13, all with these ports. */
  readonly port: number
  readonly opsPort: number
}

/** A certificate for this name in the files that `Behind.tls` names, and the certificate to trust. */
export async function createTlsFiles(name: string): Promise<{ tls: string; ca: string }> {
  const folder = makeFolder('tls')
  const { certFile, keyFile } = await createCertificate(folder, `DNS:${name}`)
  const tls = join(folder, 'app')
  cpSync(certFile, `${tls}.crt`)
  cpSync(keyFile, `${tls}.key`)
  const ca = readFileSync(certFile, 'utf8')
  writeFileSync(`${tls}.pem`, `${ca}${readFileSync(keyFile, 'utf8')}`)
  return { tls, ca }
}

/** The proxies of a test by their names; null for one that is not installed. */
type Fronts = ReadonlyMap<string, Front | null>

export function running(fronts: Fronts): Front[] {
  return [...fronts.values()].filter((front) => front !== null)
}

/** A running proxy, on 127.0.0.1. */
export interface Front {
  readonly name: string
  readonly httpPort: number
  readonly httpsPort: number
  /** What it has printed, and its access log. */
  output(): string
}

/** Replaces each of the texts, which must be there. */
function substitute(text: string, pairs: readonly (readonly [string | RegExp, string])[]): string {
  let result = text
  for (const [from, to] of pairs) {
    const next = result.replaceAll(from, to)
    if (next === result) throw new Error(`the file does not hold ${from}`)
    result = next
  }
  return result
}

const ACCESS_LOG = 'access.log'
const ERROR_LOG = 'error.log'

interface Ports {
  readonly http: number
  readonly https: number
  /** Where a terminator passes connections on. */
  readonly inner: number
  /** Of the replicas. */
  readonly replica: number
}

const PROGRAMS: Record<
  FrontName,
  {
    file: string
    /** The file as it runs in a test, and the arguments of the program. */
    prepare(text: string, ports: Ports, folder: string): { text: string; args: string[] }
    /** What ends TLS for one that cannot: `inner` is where it passes connections on, by the PROXY protocol. */
    terminator?(ports: Ports, tls: string): { name: 'hitch'; args: string[] }
  }
> = {
  nginx: {
    file: 'nginx/token-handler-bff.conf',
    prepare(text, ports, folder) {
      const path = join(folder, 'main.conf')
      const places = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
      const temporary = places.map((place) => `${place}_temp_path ${folder}/${place};`).join(' ')
      // In one process: workers would survive a killed test.
      writeFileSync(
        path,
        `daemon off; master_process off; pid ${folder}/pid; error_log stderr; events {}
         http { access_log ${join(folder, ACCESS_LOG)}; ${temporary} include ${folder}/configuration; }`,
      )
      return {
        text: substitute(text, [
          [/^ *listen \[::\].*\n/gm, ''],
          [/(server 10\.0\.0\.1)2(:.*\n)/g, '$12$2    $13$2'],
          ['/var/log/nginx/access.log', join(folder, ACCESS_LOG)],
          ['listen 80;', `listen 127.0.0.1:${ports.http};`],
          ['listen 443 ', `listen 127.0.0.1:${ports.https} `],
        ]),
        args: ['-e', 'stderr', '-c', path],
      }
    },
  },
  haproxy: {
    file: 'haproxy/haproxy.cfg',
    prepare(text, ports, folder) {
      return {
        text: substitute(text, [
          [/^ *(bind :::|user |group ).*\n/gm, ''],
          ['/dev/log', 'stdout format raw'],
          [/server (replica|unready)2 (10\.0\.0\.1)2(:.*\n)/g, '$&    server $13 $23$3'],
          ['bind :80', `bind 127.0.0.1:${ports.http}`],
          ['bind :443', `bind 127.0.0.1:${ports.https}`],
        ]),
        args: ['-f', join(folder, 'configuration')],
      }
    },
  },
  caddy: {
    file: 'caddy/Caddyfile',
    prepare(text, ports, folder) {
      const options = `admin off\ndefault_bind 127.0.0.1\nhttp_port ${ports.http}\nhttps_port ${ports.https}\n`
      return {
        text: substitute(text, [
          ['10.0.0.12:3000', '10.0.0.12:3000 10.0.0.13:3000'],
          ['{\n\t# Errors', `{\n${options}\t# Errors`],
        ]),
        args: ['run', '--adapter', 'caddyfile', '--config', join(folder, 'configuration')],
      }
    },
  },
  apache: {
    file: 'apache/token-handler-bff.conf',
    prepare(text, ports, folder) {
      const modules = [
        ...[
          'mpm_event',
          'authz_core',
          'env',
          'setenvif',
          'alias',
          'headers',
          'ssl',
          'http2',
          'slotmem_shm',
          'proxy',
        ],
        ...['proxy_http', 'proxy_balancer', 'lbmethod_bybusyness', 'watchdog', 'proxy_hcheck'],
      ]
      const loads = modules
        .map((name) => [name, `/usr/lib/apache2/modules/mod_${name}.so`] as const)
        // Debian has the watchdog in the program itself.
        .filter(([, module]) => existsSync(module))
        .map(([name, module]) => `LoadModule ${name}_module ${module}`)
      const path = join(folder, 'main.conf')
      const main = [
        ...loads,
        ...[`ServerRoot ${folder}`, `DefaultRuntimeDir ${folder}`, `PidFile ${folder}/pid`],
        ...['User nobody', 'Group nogroup', 'ServerName localhost', `ErrorLog ${folder}/${ERROR_LOG}`],
        ...[`Listen 127.0.0.1:${ports.http}`, `Listen 127.0.0.1:${ports.https}`],
        'LogFormat "%h %t \\"%r\\" %>s %b" combined',
        `Include ${folder}/configuration`,
      ]
      writeFileSync(path, `${main.join('\n')}\n`)
      return {
        text: substitute(text, [
          [/( +BalancerMember http:\/\/10\.0\.0\.1)2(:.*\n)/g, '$12$2$13$2'],
          ['/var/log/apache2/access.log', join(folder, ACCESS_LOG)],
          [/\*:80\b/g, `*:${ports.http}`],
          [/\*:443\b/g, `*:${ports.https}`],
        ]),
        // In one process: workers would survive a killed test.
        args: ['-X', '-f', path],
      }
    },
  },
  varnish: {
    file: 'varnish/default.vcl',
    prepare(text, ports, folder) {
      const second = /backend replica2 (\{[^}]*\.host = "10\.0\.0\.1)2([^}]*\}\n)/g
      const added = 'replicas.add_backend(replica2);'
      return {
        text: substitute(text, [
          [second, 'backend replica2 $12$2\nbackend replica3 $13$2'],
          [added, `${added}\n    ${added.replace('2', '3')}`],
          [/\.port = "3000"/g, `.port = "${ports.replica}"`],
          [/"10\.0\.0\.(1[123])"/g, '"127.0.0.$1"'],
        ]),
        args: [
          ...['-F', '-j', 'none', '-n', join(folder, 'varnish'), '-f', join(folder, 'configuration')],
          ...['-a', `127.0.0.1:${ports.http}`, '-a', `tls=127.0.0.1:${ports.inner},PROXY`],
          ...['-p', 'feature=+http2', '-s', 'default,64m'],
        ],
      }
    },
    terminator: ({ https, inner }, tls) => ({
      name: 'hitch',
      args: [
        ...[`--frontend=[127.0.0.1]:${https}`, `--backend=[127.0.0.1]:${inner}`, '--write-proxy-v2'],
        ...[
          '--alpn-protos=h2,http/1.1',
          '--workers=1',
          ...(process.getuid?.() === 0 ? ['--user=nobody'] : []),
          `${tls}.pem`,
        ],
      ],
    }),
  },
}

/** Starts each of these proxies that is installed, with its file of deploy/, in front of `behind`. */
export async function startFronts(
  t: Teardown,
  behind: Behind,
  names: readonly FrontName[] = FRONTS,
): Promise<Fronts> {
  const fronts = new Map<string, Front | null>()
  for (const name of names)
    fronts.set(name, installed.includes(name) ? await startFront(t, name, behind) : null)
  return fronts
}

async function startFront(t: Teardown, name: FrontName, behind: Behind): Promise<Front> {
  const { file, prepare, terminator } = PROGRAMS[name]
  const folder = makeFolder(name)
  const { port: replica, opsPort, tls } = behind
  const ports = { http: await freePort(), https: await freePort(), inner: await freePort(), replica }
  const original = readFileSync(new URL(`../../deploy/${file}`, import.meta.url), 'utf8')
  const { text, args } = prepare(original, ports, folder)
  const result = text
    .replace(/\/etc\/\w+\/tls\/app\.example\.com/g, tls)
    .replace(/10\.0\.0\.(1[123]):3000/g, `127.0.0.$1:${replica}`)
    // A chosen port may hold these digits too.
    .replace(/\b9464\b/g, String(opsPort))
  // Nothing may be left that leads elsewhere.
  if (/10\.0\.0|\/etc\//.test(result.replace(/^ *#.*$/gm, '')))
    throw new Error(`${file} is not replaced whole`)
  writeFileSync(join(folder, 'configuration'), result)
  const env = { PATH: process.env.PATH ?? '', HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder }
  const child = startChild(t, toolPath(name), args, { env, cwd: folder })
  const ends = terminator?.(ports, tls)
  const outer = ends && startChild(t, toolPath(ends.name), ends.args, { env, cwd: folder })
  const logFiles = [ACCESS_LOG, ERROR_LOG].map((log) => join(folder, log))
  const output = () =>
    child.output() +
    (outer?.output() ?? '') +
    logFiles.map((path) => (existsSync(path) ? readFileSync(path, 'utf8') : '')).join('')
  await until(`${name} listens`, async () => {
    if (child.hasEnded() || outer?.hasEnded()) throw new Error(`${name} ended at its start:\n${output()}`)
    return (await accepts(ports.http)) && (await accepts(ports.https))
  })
  return { name, httpPort: ports.http, httpsPort: ports.https, output }
}
