#!/bin/sh
# ioredis 6.0.0 (needs redis-server and redis-cli, for example Debian's 7.0): while a slot of a Cluster moves to a master that is dead, a
# command fails, its error is caught, and the process ends all the same: ioredis drops the promise of the ASKING that it sends first.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "{\"type\":\"module\"}" > package.json
npm install --silent --no-audit --no-fund ioredis@6.0.0
cat > run.mjs <<'END'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { Cluster } from 'ioredis'

const free = async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return port
}
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const nodes = []
const cli = (port, ...words) => execFileSync('redis-cli', ['-p', port, ...words]).toString().trim()
const unhandled = []
process.on('unhandledRejection', ({ message }) => unhandled.push(message))
try {
  for (let count = 0; count < 3; count += 1) {
    const port = await free()
    const words = ['--port', port, '--cluster-port', await free(), '--cluster-config-file', `${port}.conf`]
    const child = spawn('redis-server', [...words, '--cluster-enabled', 'yes', '--save', '', '--bind', '127.0.0.1', '--cluster-require-full-coverage', 'no'], { stdio: 'ignore' })
    nodes.push({ port, child })
  }
  for (const { port } of nodes) for (;;) try { cli(port, 'ping'); break } catch { await pause(50) }
  execFileSync('redis-cli', ['--cluster', 'create', ...nodes.map(({ port }) => `127.0.0.1:${port}`), '--cluster-yes'])
  for (const { port } of nodes) while (!cli(port, 'cluster', 'info').includes('cluster_state:ok')) await pause(50)

  // Slot 0 is of the first master.
  const [from, to] = nodes
  const key = '{06S}'
  const slot = cli(from.port, 'cluster', 'keyslot', key)
  cli(to.port, 'cluster', 'setslot', slot, 'importing', cli(from.port, 'cluster', 'myid'))
  cli(from.port, 'cluster', 'setslot', slot, 'migrating', cli(to.port, 'cluster', 'myid'))
  const cluster = new Cluster([{ host: '127.0.0.1', port: from.port }])
  cluster.on('error', () => {})
  await once(cluster, 'ready')
  const ended = once(to.child, 'exit')
  to.child.kill('SIGKILL')
  await ended
  const failure = await cluster.get(key).then(() => 'none', ({ message }) => message)
  await pause(100)
  const version = execFileSync('redis-server', ['--version']).toString().split(' ')[2]
  console.log(`ioredis 6.0.0, Redis ${version}, slot ${slot}: the caller's error ${JSON.stringify(failure)}, unhandled rejections ${JSON.stringify(unhandled)}`)
  cluster.disconnect()
  process.exitCode = failure !== 'none' && unhandled.length > 0 ? 0 : 1
} finally {
  for (const { child } of nodes) child.kill()
}
END
node run.mjs
