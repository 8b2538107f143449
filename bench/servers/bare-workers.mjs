// The lower bound of two workers: Node's cluster module with bare.mjs in each worker.
import cluster from 'node:cluster'

if (cluster.isPrimary) {
  for (let worker = 0; worker < 2; worker += 1) cluster.fork()
} else {
  await import('./bare.mjs')
}
