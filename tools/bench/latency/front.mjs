// HAProxy or nginx with its file of deploy/, without TLS, in front of two replicas on this machine.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { findProgram, ROOT } from '../places.mjs'
import { freePort } from '../processes.mjs'
import { get } from '../sign-in.mjs'

const FRONTS = { haproxy: haproxyFiles, nginx: nginxFiles }

/** The reverse proxy to use, or null if none is installed. */
export function chooseFront() {
  return Object.keys(FRONTS).find((name) => findProgram(name) !== null) ?? null
}

/** Starts it in front of `replicas`, two of `{port, opsPort}`. Returns its URL. */
export async function startFront({ processes, folder }, name, replicas) {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const args = FRONTS[name]({ folder, port, replicas })
  const requireReplica = async () => {
    const { status } = await get(`${url}/auth/session`, {})
    if (status !== 200) throw new Error(`${url} answers ${status}`)
  }
  await processes.start(findProgram(name), args, { core: 'load', ready: requireReplica })
  return url
}

function haproxyFiles({ folder, port, replicas }) {
  const file = join(folder, 'haproxy.cfg')
  const servers = replicas.map((each, at) => [
    `server replica${at + 1} 10.0.0.1${at + 1}:3000`,
    `server replica${at + 1} 127.0.0.1:${each.port} check port ${each.opsPort}`,
  ])
  const text = substitute('haproxy/haproxy.cfg', [
    [/^ *(log |option httplog|user |group |bind :80|bind :::|http-request redirect ).*\n/gm, ''],
    [/bind :443 .*/, `bind 127.0.0.1:${port}`],
    ...servers,
  ])
  writeFileSync(file, text)
  return ['-db', '-f', file]
}

function nginxFiles({ folder, port, replicas }) {
  const path = join(folder, 'front')
  const servers = replicas.map((each, at) => [`10.0.0.1${at + 1}:3000`, `127.0.0.1:${each.port}`])
  const text = substitute('nginx/token-handler-bff.conf', [
    [/^server \{\n *listen 80;[\s\S]*?^\}\n/m, ''],
    [/^ *(listen \[::\]|ssl_|server_name ).*\n/gm, ''],
    [/listen 443 .*/, `listen 127.0.0.1:${port};`],
    ...servers,
  ])
  const places = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
  const temporary = places.map((place) => `${place}_temp_path ${path}-${place};`).join(' ')
  const user = process.getuid?.() === 0 ? 'user root;' : ''
  writeFileSync(
    `${path}.conf`,
    `daemon off; worker_processes 1; ${user} pid ${path}.pid; error_log ${path}-error.log;
events { worker_connections 1024; }
http { access_log off; keepalive_requests 100000000; ${temporary} ${text} }
`,
  )
  return ['-c', `${path}.conf`, '-p', folder]
}

/** Replaces each of the texts of a file, which must be there. */
function substitute(file, pairs) {
  let text = readFileSync(join(ROOT, 'deploy', file), 'utf8')
  for (const [from, to] of pairs) {
    const next = text.replace(from, to)
    if (next === text) throw new Error(`deploy/${file} does not hold ${from}`)
    text = next
  }
  return text
}
