// An open-loop load: requests at a fixed mean rate, with random gaps as between the calls of many users. A request
// is due whether or not earlier ones were answered, and its latency counts from then: no coordinated omission.
// The requests of `lead`, `{seconds, rate}`, come first and do not count: this program is slow until its code is compiled.
// A separate process: its job is one JSON argument, its result is one line of JSON. SIGTERM ends it early.
import { connect } from 'node:net'
import { Worker } from 'node:worker_threads'
import { createReader, prepareRequests } from './requests.mjs'
import { now, percentilesOf, writeSamples } from './samples.mjs'

const { port, file, headers, connections, rate, lead, seconds, samples } = JSON.parse(process.argv[2])

const ANSWER_MS = 10_000
const REOPEN_MS = 20
/** Until the first request: the pacer starts meanwhile. */
const START_MS = 200
/** In the place of a status. */
const UNANSWERED = 0
const BROKEN = 1

const requests = prepareRequests({ file, port, headers })
const first = Math.round((lead?.rate ?? 0) * (lead?.seconds ?? 0))
const planned = first + Math.max(1, Math.round(rate * seconds))
const due = new Float64Array(new SharedArrayBuffer(planned * 8)).fill(Number.POSITIVE_INFINITY)
// When this process saw that a request was due, after its time: its own delay, whatever the server does.
const late = new Float64Array(planned)
const latency = new Float64Array(planned)
const status = new Uint16Array(planned).fill(UNANSWERED)
const free = []
let noticed = 0
let sent = 0
// Counted requests that were due while all connections waited for responses.
let waited = 0
let waitsUpTo = first
let finished = 0
let last = planned
let over = false

await Promise.all(Array.from({ length: connections }, () => new Promise(open)))
const woken = new Int32Array(new SharedArrayBuffer(4))
const random = createRandom()
let at = now() + START_MS
for (let each = 0; each < planned; each += 1) {
  due[each] = at
  at -= (Math.log(1 - random()) * 1_000) / (each < first ? lead.rate : rate)
}
const pacer = new Worker(new URL('pacer.mjs', import.meta.url), { workerData: { due, woken } })
pacer.on('message', () => {
  Atomics.store(woken, 0, 0)
  sendDue()
})
setTimeout(finish, at - now() + ANSWER_MS)
process.on('SIGTERM', () => {
  last = noticed
  setTimeout(finish, ANSWER_MS)
  if (finished === last) finish()
})
setTimeout(() => console.log('started'), START_MS + (lead?.seconds ?? 0) * 1_000)

function sendDue() {
  const time = now()
  while (noticed < last && due[noticed] <= time) {
    late[noticed] = time - due[noticed]
    noticed += 1
  }
  while (sent < noticed && free.length > 0) {
    free.shift().send(sent)
    sent += 1
  }
  if (sent === noticed) return
  waited += Math.max(0, noticed - Math.max(sent, waitsUpTo))
  waitsUpTo = Math.max(waitsUpTo, noticed)
}

/** A connection that is opened again whenever it ends. `onOpen` is called once, when it is open for the first time. */
function open(onOpen) {
  let current = null
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  const line = {
    send(request) {
      current = request
      socket.write(requests[request % requests.length])
    },
  }
  const release = () => {
    free.push(line)
    sendDue()
  }
  const answer = (code) => {
    const request = current
    current = null
    if (request !== null) keep(request, code)
  }
  socket.on('connect', () => {
    onOpen()
    release()
  })
  socket.on(
    'data',
    createReader((code, closes) => {
      answer(code)
      if (closes) socket.destroy()
      else release()
    }),
  )
  socket.on('error', () => {})
  socket.on('close', () => {
    answer(BROKEN)
    if (free.includes(line)) free.splice(free.indexOf(line), 1)
    if (!over) setTimeout(open, REOPEN_MS, onOpen)
  })
}

function keep(request, code) {
  status[request] = code
  latency[request] = now() - due[request]
  finished += 1
  if (finished === last) finish()
}

function finish() {
  if (over) return
  over = true
  const counted = Math.max(0, last - first)
  const good = []
  const statuses = {}
  for (let each = first; each < last; each += 1) {
    const code = status[each]
    statuses[code] = (statuses[code] ?? 0) + 1
    if (code >= 200 && code <= 299) good.push(latency[each])
  }
  if (samples !== undefined) writeSamples(samples, { due, late, latency, status }, { from: first, to: last })
  const result = {
    requests: counted,
    failed: counted - good.length,
    statuses,
    rate,
    latency: percentilesOf(good),
    late: percentilesOf(late.subarray(first, Math.max(first, last))),
    waited,
  }
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0))
}

/** Numbers from 0 to 1, the same in each process (mulberry32), so that all loads have the same gaps. */
function createRandom() {
  let state = 1
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
