// A load generator for machines without wrk: plain sockets, prepared requests, every status checked.
// A separate process: its job is one JSON argument, its result is one line of JSON.
import { connect } from 'node:net'
import { createReader, prepareRequests } from './requests.mjs'

const { port, file, headers, connections, seconds } = JSON.parse(process.argv[2])

const FIRST_RESPONSE_MS = 10_000

const requests = prepareRequests({ file, port, headers })
const latencies = []
let next = 0
let failed = 0
let stopping = false
let open = connections

for (let at = 0; at < connections; at += 1) run()
const startedAt = performance.now()
let endedAt = 0
setTimeout(stop, seconds * 1_000)

function stop() {
  // On a busy machine a short load may be over before its first response.
  if (latencies.length === 0 && performance.now() - startedAt < FIRST_RESPONSE_MS) {
    setTimeout(stop, 10)
    return
  }
  stopping = true
  endedAt = performance.now()
}

function run() {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  let sentAt = 0
  const send = () => {
    sentAt = performance.now()
    socket.write(requests[next])
    next = (next + 1) % requests.length
  }
  socket.on('connect', send)
  const onResponse = (status) => {
    if (status < 200 || status > 299) failed += 1
    if (!stopping) latencies.push(performance.now() - sentAt)
    if (stopping) socket.destroy()
    else send()
  }
  socket.on('data', createReader(onResponse))
  socket.on('error', () => {})
  socket.on('close', () => {
    if (!stopping) failed += 1
    open -= 1
    if (open === 0) finish()
  })
}

function finish() {
  latencies.sort((a, b) => a - b)
  const percentile = (part) => latencies[Math.floor((latencies.length - 1) * part)] ?? 0
  const result = {
    requests: latencies.length,
    seconds: (endedAt - startedAt) / 1_000,
    failed,
    p50: percentile(0.5),
    p99: percentile(0.99),
  }
  console.log(JSON.stringify(result))
}
