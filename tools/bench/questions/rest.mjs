// What does a server cost that nobody uses, and what do its sessions?
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { again, OURS, startPeer, startWorker } from '../candidates.mjs'
import { compare } from '../compare.mjs'
import { cpuOf, memoryOf } from '../machine.mjs'
import { markdownTable, range, say, whole } from '../page.mjs'

const IMPORTS = { name: 'imports', start: (services, options) => startPeer(services, 'imports', options) }
const SETTLE_MS = 3_000

export const rest = {
  candidates: [OURS, again(OURS), IMPORTS],
  reference: IMPORTS,
  usual: { rounds: 5, seconds: 20, sessions: 100_000 },
  quick: { rounds: 1, seconds: 4, sessions: 2_000 },

  async measure(services, { candidates, sessions, ...options }) {
    const bytes = await bytesEach(services, sessions)
    // Idle without sessions too: the scan of all of them, every ten minutes, would be most of the commands.
    await services.store.client.flushall()
    // Code is compiled before the start, as in the image. An ended process leaves its compiled code behind.
    const env = { NODE_COMPILE_CACHE: join(services.processes.folder, 'compiled') }
    const first = await OURS.start(services, { env })
    await first.stop()
    const { rows, noise } = await compare({
      candidates,
      reference: IMPORTS,
      options: { ...options, warmup: 1, turnSeconds: Number.POSITIVE_INFINITY },
      start: async (candidate) => ({
        async warmUp() {},
        load: (seconds) => watch(services, candidate, { seconds, env: candidate === IMPORTS ? {} : env }),
        async stop() {},
      }),
      figuresOf: (loads) => loads.at(-1),
      judgedBy: ['startMs'],
    })
    return { table: tableOf({ sessions, bytes, ...rows[0] }), noise }
  },
}

/** Redis memory of each of so many sessions. */
async function bytesEach(services, sessions) {
  const { client, usedBytes } = services.store
  await client.flushall()
  const before = await usedBytes()
  say(`storing ${sessions} sessions`)
  const { ask, stop } = await startWorker(services)
  await ask({ job: 'fill', count: sessions })
  await stop()
  return ((await usedBytes()) - before) / sessions
}

/** Starts a process and leaves it idle for so long. */
async function watch(services, candidate, { seconds, env }) {
  const begun = performance.now()
  const { pid, stop } = await candidate.start(services, { env })
  const startMs = performance.now() - begun
  await pause(SETTLE_MS)
  let commands = 0
  const monitor = await services.store.client.monitor()
  monitor.on('monitor', (_time, _command, source) => {
    if (source !== 'lua') commands += 1
  })
  const cpu = cpuOf(pid)
  await pause(seconds * 1_000)
  monitor.disconnect()
  const figures = {
    startMs,
    commands: commands / seconds,
    cpuPercent: (cpuOf(pid) - cpu) / seconds / 1e4,
    memory: memoryOf(pid) / 1e6,
  }
  await stop()
  return figures
}

function tableOf({ sessions, bytes, figures, times }) {
  const start = `${whole(figures.startMs.middle)} ms; ${range(times.startMs, 2)} ×`
  const rows = [
    [`Redis memory of each of ${whole(sessions)} sessions`, `${whole(bytes)} bytes`, '1,340'],
    ['start to `/readyz` 200; × a process that only imports the same five packages', start, '1.50 ×'],
    ['idle: resident size', `${range(figures.memory, 0)} MB`, '85 MB on Node 24'],
    ['idle: Redis commands a second', range(figures.commands, 1), 'below 1'],
    ['idle: CPU', `${range(figures.cpuPercent, 1)} % of a core`, ''],
  ]
  const columns = ['', 'measured', 'goal'].map((heading, at) => [heading, (row) => row[at]])
  return markdownTable(columns, rows)
}
