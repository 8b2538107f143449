// A load generator of plain sockets: prepared requests, every status checked. A separate process: its job is one JSON
// argument, its result one line of JSON. In rotation each connection sends the next request of the file when its response
// is there: for `seconds`, or with `once` until each was sent. With `pages`, `{ everySeconds, calls }`, the load is open:
// each so many requests in the file are those of one page, which sends them all at its time in each period. A call then
// waits for a free connection, and that time counts: no coordinated omission. With `sets`, `{ count, slotMs, pid }`, the file
// holds so many sets of equally many requests, which take turns of `slotMs`, and the result has the responses and the CPU
// time of the process `pid` in the turns of each: what slows the machine for longer than that slows all of them alike.
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { cpuOf } from '../machine.mjs'

const { port, file, headers, connections, seconds, once, pages, sets } = JSON.parse(process.argv[2])

const PATIENCE_MS = 10_000

const requests = readFileSync(file, 'utf8').split('\n').filter(Boolean).map(prepare)
const latencies = []
/** When each call of a page that no connection has sent was due. */
const waiting = []
const free = []
let sent = 0
let failed = 0
let open = connections
let over = false
let endedAt = 0
const inTurns = Array.from({ length: sets?.count ?? 0 }, () => ({ count: 0, cpu: 0 }))
let turn = 0

const startedAt = performance.now()
for (let at = 0; at < connections; at += 1) connectOne()
if (pages !== undefined) openPages()
if (sets !== undefined) takeTurns()
if (once === undefined) setTimeout(stop, seconds * 1_000)

function prepare(line) {
  const [method, path, cookie] = line.split('\t')
  const length = method === 'POST' ? { 'content-length': 0 } : {}
  const fields = { host: `127.0.0.1:${port}`, ...headers, cookie, ...length }
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.from(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`)
}

/** Each page has its time in the period by chance. */
function openPages() {
  const period = pages.everySeconds * 1_000
  const times = Float64Array.from(
    { length: requests.length / pages.calls },
    () => Math.random() * period,
  ).sort()
  let asked = 0
  const timer = setInterval(() => {
    const now = performance.now()
    const dueAt = () => startedAt + Math.floor(asked / times.length) * period + times[asked % times.length]
    for (; !over && dueAt() <= now; asked += 1) waiting.push(...Array(pages.calls).fill(now))
    while (free.length > 0 && waiting.length > 0) free.pop()()
    if (over) clearInterval(timer)
  }, 1)
}

/** What is on the way at a change counts for the next set: few connections, beside the calls of a turn. */
function takeTurns() {
  let before = { count: 0, cpu: cpuOf(sets.pid) }
  const timer = setInterval(() => {
    const now = { count: latencies.length, cpu: cpuOf(sets.pid) }
    inTurns[turn].count += now.count - before.count
    inTurns[turn].cpu += now.cpu - before.cpu
    before = now
    turn = (turn + 1) % sets.count
    if (over) clearInterval(timer)
  }, sets.slotMs)
}

/** The next request: of the set whose turn it is. */
function nextRequest() {
  const size = requests.length / (sets?.count ?? 1)
  return requests[turn * size + (sent % size)]
}

/** When the next request was due, or null: there is none now. */
function nextDue() {
  if (pages !== undefined) return waiting.shift() ?? null
  return over || (once && sent === requests.length) ? null : performance.now()
}

function stop() {
  // On a busy machine a short load may be over before its first response, or that of a set.
  const lacks = latencies.length === 0 || inTurns.some(({ count }) => count === 0)
  if (lacks && performance.now() - startedAt < PATIENCE_MS) return void setTimeout(stop, 10)
  over = true
  endedAt = performance.now()
  setTimeout(finish, PATIENCE_MS)
  for (const send of free.splice(0)) send()
}

function connectOne() {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  let dueAt = null
  const send = () => {
    dueAt = nextDue()
    if (dueAt !== null) {
      socket.write(nextRequest())
      sent += 1
    } else if (over || once) socket.destroy()
    else free.push(send)
  }
  let responses = 0
  const read = createReader((status, closes) => {
    if (status < 200 || status > 299) failed += 1
    latencies.push(performance.now() - dueAt)
    dueAt = null
    responses += 1
    if (closes) socket.destroy()
    else send()
  })
  socket.on('connect', send).on('data', read)
  socket.on('error', () => {})
  socket.on('close', () => {
    if (free.includes(send)) free.splice(free.indexOf(send), 1)
    const isDone = (over && waiting.length === 0) || (once && sent >= requests.length)
    // A server may end a connection between two responses.
    if (dueAt === null && responses > 0 && !isDone) return connectOne()
    if (dueAt !== null || !isDone) failed += 1
    open -= 1
    if (open === 0) finish()
  })
}

/** Calls `onResponse(status, closes)` at the end of each response of one connection. All have a length. */
function createReader(onResponse) {
  let text = ''
  return (part) => {
    text += part.latin1Slice()
    const end = text.indexOf('\r\n\r\n') + 4
    if (end < 4) return
    const head = text.slice(0, end)
    const status = Number(head.slice(9, 12))
    const length = status === 204 ? 0 : Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1])
    if (text.length < end + length) return
    text = ''
    onResponse(status, Number.isNaN(length) || /\r\nconnection: *close\r\n/i.test(head))
  }
}

function finish() {
  latencies.sort((a, b) => a - b)
  const percentile = (part) => latencies[Math.ceil(latencies.length * part) - 1] ?? 0
  const result = {
    requests: latencies.length,
    seconds: ((endedAt || performance.now()) - startedAt) / 1_000,
    // Calls without a response in time are failed too.
    failed: failed + waiting.length + open,
    p50: percentile(0.5),
    p99: percentile(0.99),
    inTurns,
  }
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0))
}
