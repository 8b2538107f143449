// A resource server that sends a file to each GET and takes any other body, without looking at a byte.
import { createServer } from 'node:http'

const [port, bytes] = process.argv.slice(2).map(Number)
const CHUNK = Buffer.alloc(64 * 1_024, 'x')

function send(response) {
  response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': bytes })
  let left = bytes
  const more = () => {
    while (left > 0) {
      const chunk = left < CHUNK.length ? CHUNK.subarray(0, left) : CHUNK
      left -= chunk.length
      if (!response.write(chunk)) return response.once('drain', more)
    }
    response.end()
  }
  more()
}

const server = createServer((request, response) => {
  if (request.method === 'GET') return send(response)
  request.resume().once('end', () => response.writeHead(204).end())
})

process.on('message', () => process.send({}))
process.on('disconnect', () => process.exit(0))
server.listen(port, '127.0.0.1', () => console.log('ready'))
