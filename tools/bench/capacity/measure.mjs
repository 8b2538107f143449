// Fills the store and measures every figure of the page in sequence.
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { DIST } from '../places.mjs'
import { freePort } from '../processes.mjs'
import { replicaEnv } from '../refresh/sessions.mjs'
import { get, signIn } from '../sign-in.mjs'

const WORKER = fileURLToPath(new URL('store-worker.mjs', import.meta.url))
const PREFIX = 'capacity:'
const AT_ONCE = 64

/** Fills the masters and measures. Returns the figures that tables.mjs prints, times in milliseconds, CPU in microseconds. */
export async function measureCapacity({ services, masters, options, say }) {
  const { sessions, calls, starts } = options
  const settings = {
    redisPort: masters.port,
    tokenUrl: `${services.authUrl}/oauth/token`,
    prefix: PREFIX,
    env: { REDIS_URL: masters.url },
  }
  const empty = await usedMemory(masters)
  const worker = await startWorker(services, settings, (filled) => say(`${filled} of ${sessions} sessions`))
  const startedAt = performance.now()
  await worker.ask({ name: 'fill', sessions })
  say(`filled in ${Math.round((performance.now() - startedAt) / 1_000)} s`)
  const bytesEach = ((await usedMemory(masters)) - empty) / sessions
  const queueBytesEach = (await queueMemory(masters)) / sessions

  const read = await worker.ask({ name: 'time', what: 'read', calls })
  const queueLength = await worker.ask({ name: 'time', what: 'queueLength', calls: calls / 10 })
  const idleClaim = await worker.ask({ name: 'time', what: 'claimDue', calls })
  const due = Math.ceil(sessions / 100)
  const dueClaim = await worker.ask({ name: 'claimDue', due })
  say('measured: claims and reads')
  const replace = await worker.ask({ name: 'refreshes', calls, atOnce: 1 })
  const cpuBefore = masters.cpu()
  const startedRefreshes = performance.now()
  await worker.ask({ name: 'refreshes', calls, atOnce: AT_ONCE })
  const refreshSeconds = (performance.now() - startedRefreshes) / 1_000
  const redisCpuEach = cpuBefore === null ? null : (masters.cpu() - cpuBefore) / calls

  const replicas = await timeStarts({ services, settings, starts })
  await worker.stop()
  return {
    ...{ masters: masters.count, sessions, bytesEach, queueBytesEach, calls, due },
    ...{ read: read.took, queueLength: queueLength.took, replace: replace.took },
    ...{ idleClaim: idleClaim.took, dueClaim: dueClaim.took },
    ...{ refreshesEach: calls / refreshSeconds, redisCpuEach, ...replicas },
  }
}

async function startWorker(services, settings, onProgress) {
  const { child, output, stop } = await services.processes.start(
    process.execPath,
    [WORKER, JSON.stringify(settings)],
    { core: 'server', ready: /ready/, ipc: true },
  )
  child.on('message', ({ progress }) => progress !== undefined && onProgress(progress))
  const ask = (order) =>
    new Promise((resolve, reject) => {
      const onEnd = () => reject(new Error(`the worker ended:\n${output()}`))
      child.once('exit', onEnd)
      child.on('message', function listen({ result, fault }) {
        if (result === undefined && fault === undefined) return
        child.off('message', listen)
        child.off('exit', onEnd)
        if (fault === undefined) resolve(result)
        else reject(new Error(`${order.name}: ${fault}`))
      })
      child.send(order)
    })
  return { ask, stop }
}

/** Milliseconds from the start of a new process to `/readyz` 200, and to the first call it served. */
async function timeStarts({ services, settings, starts }) {
  const place = { port: await freePort(), opsPort: await freePort() }
  const first = await startReplica(services, settings, place)
  const cookie = await signIn(`${first.url}/auth/login`)
  await first.stop()
  const [readyMs, servedMs] = [[], []]
  for (let at = 0; at < starts; at += 1) {
    const begun = performance.now()
    const replica = await startReplica(services, settings, place)
    readyMs.push(performance.now() - begun)
    const headers = { cookie, 'sec-fetch-site': 'same-origin' }
    const { status, body } = await get(`${replica.url}/flux/DEMO/small`, headers)
    if (status !== 200) throw new Error(`the first call: ${status} ${body}`)
    servedMs.push(performance.now() - begun)
    await replica.stop()
  }
  return { readyMs, servedMs }
}

async function startReplica(services, settings, { port, opsPort }) {
  const url = `http://127.0.0.1:${port}`
  const { pid, stop } = await services.processes.start(process.execPath, [join(DIST, 'main.js')], {
    core: 'server',
    env: {
      ...replicaEnv(settings),
      PORT: String(port),
      OPS_PORT: String(opsPort),
      PUBLIC_URL: url,
      AUTH_URL: services.authUrl,
      BASE_URL: services.upstreamUrl,
    },
    async ready() {
      const { status } = await get(`http://127.0.0.1:${opsPort}/readyz`, {})
      if (status !== 200) throw new Error(`/readyz responded ${status}`)
    },
  })
  return { url, pid, stop }
}

async function usedMemory({ info }) {
  const each = (await info('memory')).map((text) => Number(/used_memory:(\d+)/.exec(text)[1]))
  return each.reduce((sum, bytes) => sum + bytes)
}

async function queueMemory({ memoryOf }) {
  return await memoryOf(`${PREFIX}due`)
}
