// A thread of open-loop.mjs that wakes it when a request is due. Timers of Node are exact to a millisecond only.
import { parentPort, workerData } from 'node:worker_threads'
import { now } from './samples.mjs'

const { due, woken } = workerData
const never = new Int32Array(new SharedArrayBuffer(4))

for (const at of due) {
  const left = at - now()
  if (left > 0) Atomics.wait(never, 0, 0, left)
  // One message at a time: it covers all requests that are due when it arrives.
  if (Atomics.exchange(woken, 0, 1) === 0) parentPort.postMessage(null)
}
