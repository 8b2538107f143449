// The services of every candidate: Redis, an authorization server, a resource server.

import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { findProgram } from './places.mjs'
import { freePort } from './processes.mjs'

const platformServer = (name) => fileURLToPath(new URL(`platform/${name}.mjs`, import.meta.url))

// The polls of the due queue, and the commands of /metrics and of this count.
const BACKGROUND = new Set(['evalsha', 'zrangebyscore', 'zrange', 'time', 'zcard', 'info'])

/** Starts the services on the cores of the load generator. */
export async function startServices(processes) {
  const redisPort = await freePort()
  const upstreamPort = await freePort()
  const authPort = await freePort()
  const { pid: redisPid } = await processes.start(
    findProgram('redis-server'),
    ['--port', String(redisPort), '--bind', '127.0.0.1', '--save', '', '--dir', processes.folder],
    { core: 'load', ready: /Ready to accept connections/ },
  )
  const upstream = await startNode(processes, platformServer('resource-server'), upstreamPort)
  await startNode(processes, platformServer('authorization-server'), authPort)
  const clients = []
  const connect = (port, options = {}) => {
    const client = new Redis({ port, host: '127.0.0.1', ...options })
    clients.push(client)
    return client
  }
  const redis = connect(redisPort)

  return {
    processes,
    folder: processes.folder,
    redis,
    redisPort,
    redisPid,
    upstreamUrl: `http://127.0.0.1:${upstreamPort}`,
    authUrl: `http://127.0.0.1:${authPort}`,
    /** Responses of the resource server to calls with a token, and granted token requests. */
    counts: () =>
      new Promise((resolve) => {
        upstream.child.once('message', resolve)
        upstream.child.send('counts')
      }),
    /** Commands that Redis has executed so far, without the constant load of idle replicas. */
    async redisCommands() {
      const lines = (await redis.info('commandstats')).matchAll(/cmdstat_([^:]+):calls=(\d+)/g)
      return [...lines].reduce((sum, [, name, calls]) => sum + (BACKGROUND.has(name) ? 0 : Number(calls)), 0)
    },
    /** A client of another Redis, with these options of ioredis. `close` disconnects it too. */
    connect,
    close() {
      for (const client of clients) client.disconnect()
    },
  }
}

function startNode(processes, file, port) {
  return processes.start(process.execPath, [file, String(port)], { core: 'load', ready: /ready/, ipc: true })
}
