// Lower bound for files: node:http for requests, undici upstream, and nothing but pipes between them.
import { createServer } from 'node:http'
import { Pool } from 'undici'

const { PORT, FILES_URL } = process.env
const pool = new Pool(FILES_URL, { connections: 128, pipelining: 1 })
const KEPT = ['content-type', 'content-length']

const server = createServer((request, response) => {
  const { url: path, method } = request
  const headers = Object.fromEntries(KEPT.map((name) => [name, request.headers[name]]).filter(([, is]) => is))
  const body = method === 'GET' ? null : request
  pool.stream({ path, method, headers, body }, ({ statusCode, headers }) => {
    response.writeHead(statusCode, headers)
    return response
  })
})
server.listen(Number(PORT), '127.0.0.1')
