// A resource server with minimal cost: hand-written HTTP/1.1 on plain sockets, with prepared
// responses of 1 KB and 256 KB. It counts the responses to calls with a bearer token, so that
// the count of a load can be verified. POST /oauth/token is an equally cheap token endpoint.
import { createServer } from 'node:net'

const SIZES = { small: 1_024, big: 262_144 }
const TOKENS = {
  access_token: 'a'.repeat(800),
  token_type: 'bearer',
  refresh_token: 'r'.repeat(64),
  scope: 'http://127.0.0.1',
}

const answers = { small: fluxAnswer(SIZES.small), big: fluxAnswer(SIZES.big) }
const refused = answerOf('401 Unauthorized', '{"error":"invalid_token"}')
// Due at once, so that the next refresh of the same session can start immediately.
const dueTokens = answerOf('200 OK', JSON.stringify({ ...TOKENS, expires_in: 0 }))
const tokens = answerOf('200 OK', JSON.stringify({ ...TOKENS, expires_in: 3_600 }))

let served = 0
let granted = 0

const server = createServer({ noDelay: true }, (socket) => {
  let pending = ''
  socket.on('error', () => socket.destroy())
  socket.on('data', (chunk) => {
    pending += chunk.latin1Slice()
    for (;;) {
      const end = pending.indexOf('\r\n\r\n')
      if (end < 0) return
      const head = pending.slice(0, end)
      const size = end + 4 + bodyLength(head)
      if (pending.length < size) return
      pending = pending.slice(size)
      socket.write(answerTo(head))
    }
  })
})

function answerTo(head) {
  if (head.startsWith('POST')) {
    granted += 1
    return head.startsWith('POST /due/') ? dueTokens : tokens
  }
  if (!/\r\nauthorization: bearer ./i.test(head)) return refused
  served += 1
  return head.slice(0, head.indexOf('\r\n')).includes('/big/') ? answers.big : answers.small
}

function bodyLength(head) {
  return head.startsWith('GET') ? 0 : Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0)
}

function fluxAnswer(bytes) {
  const frame = '{"wType":"Flux","id":1,"values":""}'
  return answerOf(
    '200 OK',
    frame.replace('""', `"${'0123456789'.repeat(bytes).slice(0, bytes - frame.length)}"`),
  )
}

function answerOf(status, body) {
  return Buffer.from(
    `HTTP/1.1 ${status}\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: ${body.length}\r\n` +
      `date: ${new Date().toUTCString()}\r\ncache-control: private\r\n\r\n${body}`,
  )
}

process.on('message', () => process.send({ served, granted }))
process.on('disconnect', () => process.exit(0))
server.listen(Number(process.argv[2]), '127.0.0.1', () => console.log('ready'))
