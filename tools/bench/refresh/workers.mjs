// The processes that refresh tokens, as the benchmark and the profile start them.
import { fileURLToPath } from 'node:url'

const WORKER = fileURLToPath(new URL('worker.mjs', import.meta.url))

/** Starts a worker; `way` is plain, libraries, request or schedule, see worker.mjs. */
export function startWorker(services, { way, nodeArgs = [], env = {} }) {
  // Tokens that are due at once, so the next refresh of the same session need not wait an hour.
  const tokenUrl = `${services.upstreamUrl}${way === 'request' ? '/due' : ''}/oauth/token`
  const settings = { way, redisPort: services.redisPort, tokenUrl, prefix: `${way}:` }
  return services.processes.start(process.execPath, [...nodeArgs, WORKER, JSON.stringify(settings)], {
    core: 'server',
    ready: /ready/,
    ipc: true,
    env,
  })
}

/** Sends one job, `{seconds}` or `{count}`, and resolves with `{refreshes, seconds, cpu}`. */
export function order(worker, job) {
  return new Promise((resolve, reject) => {
    const onEnd = () => reject(new Error(`the worker ended:\n${worker.output()}`))
    // Later than `exit`: its output is complete.
    worker.child.once('close', onEnd)
    worker.child.once('message', (result) => {
      worker.child.off('close', onEnd)
      resolve(result)
    })
    worker.child.send(job)
  })
}
