// A resource server with minimal cost: hand-written HTTP/1.1 on plain sockets, with prepared responses. It counts the
// responses of 1 KB to calls with a bearer token, so that the count of a load can be verified. Each POST is a token request.
import { createServer } from 'node:net'

const BYTES = 1_024
const FLUX = { wType: 'Flux', id: 1, values: '' }
const padding = '0'.repeat(BYTES - JSON.stringify(FLUX).length)
const flux = responseOf('200 OK', { ...FLUX, values: padding })
const refused = responseOf('401 Unauthorized', { error: 'invalid_token' })
const tokens = responseOf('200 OK', {
  access_token: 'a'.repeat(800),
  token_type: 'bearer',
  expires_in: 3_600,
  refresh_token: 'r'.repeat(64),
  scope: 'http://127.0.0.1',
})

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
      const size = end + 4 + Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0)
      if (pending.length < size) return
      pending = pending.slice(size)
      socket.write(respond(head))
    }
  })
})

function respond(head) {
  if (head.startsWith('POST')) {
    granted += 1
    return tokens
  }
  if (!/\r\nauthorization: bearer ./i.test(head)) return refused
  served += 1
  return flux
}

function responseOf(status, json) {
  const body = JSON.stringify(json)
  return Buffer.from(
    `HTTP/1.1 ${status}\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: ${body.length}\r\n` +
      `date: ${new Date().toUTCString()}\r\ncache-control: private\r\n\r\n${body}`,
  )
}

process.on('message', () => process.send({ served, granted }))
process.on('disconnect', () => process.exit(0))
server.listen(Number(process.argv[2]), '127.0.0.1', () => console.log('ready'))
