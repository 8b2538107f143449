// A load generator for machines without wrk: plain sockets, prepared requests, every status checked.
// A separate process: its job is one JSON argument, its result is one line of JSON.
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'

const { port, file, headers, connections, seconds } = JSON.parse(process.argv[2])

const requests = readFileSync(file, 'utf8')
  .split('\n')
  .filter(Boolean)
  .map((line) => {
    const [path, cookie] = line.split('\t')
    const fields = { host: `127.0.0.1:${port}`, ...headers, ...(cookie === '' ? {} : { cookie }) }
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`)
    return Buffer.from(`GET ${path} HTTP/1.1\r\n${lines.join('')}\r\n`)
  })

const latencies = []
let next = 0
let failed = 0
let stopping = false
let open = connections

for (let at = 0; at < connections; at += 1) run()
const startedAt = performance.now()
let endedAt = 0
setTimeout(() => {
  stopping = true
  endedAt = performance.now()
}, seconds * 1_000)

function run() {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  const reader = createReader()
  let sentAt = 0
  const send = () => {
    sentAt = performance.now()
    socket.write(requests[next])
    next = (next + 1) % requests.length
  }
  socket.on('connect', send)
  socket.on('data', (chunk) => {
    const status = reader(chunk)
    if (status === null) return
    if (status < 200 || status > 299) failed += 1
    if (!stopping) latencies.push(performance.now() - sentAt)
    if (stopping) socket.destroy()
    else send()
  })
  socket.on('error', () => {})
  socket.on('close', () => {
    if (!stopping) failed += 1
    open -= 1
    if (open === 0) finish()
  })
}

/** Parses the chunks of a response. Returns its status with the last one, and null before. */
function createReader() {
  let head = ''
  let status = 0
  let missing = -1
  let chunked = false
  let tail = ''
  return (part) => {
    let bytes = part.length
    if (missing < 0 && !chunked) {
      const before = head.length
      head += part.latin1Slice()
      const end = head.indexOf('\r\n\r\n')
      if (end < 0) return null
      status = Number(head.slice(9, 12))
      const length = /\r\ncontent-length: *(\d+)/i.exec(head.slice(0, end + 2))
      chunked = length === null
      missing = chunked ? -1 : Number(length[1])
      tail = head.slice(end + 4)
      bytes = before + part.length - (end + 4)
    } else if (chunked) tail = (tail + part.latin1Slice()).slice(-7)
    if (!chunked) missing -= bytes
    const whole = chunked ? tail.endsWith('0\r\n\r\n') : missing <= 0
    if (!whole) return null
    head = ''
    tail = ''
    missing = -1
    chunked = false
    return status
  }
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
