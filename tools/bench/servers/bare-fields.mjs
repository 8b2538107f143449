// The lower bound for the interface of this server: as bare.mjs, with the header fields that it sends to both sides, and the
// time limits of its connections.
import { createServer } from 'node:http'
import { Pool } from 'undici'

const LIMITS = {
  connectTimeout: 30_000,
  headersTimeout: 30_000,
  bodyTimeout: 30_000,
  keepAliveTimeout: 30_000,
}
const pool = new Pool(process.env.UPSTREAM_URL, { connections: 128, pipelining: 1, ...LIMITS })
const AUTHORIZATION = `Bearer ${'a'.repeat(800)}`
const OWN = [
  ...['x-content-type-options', 'nosniff'],
  ...['content-security-policy', "default-src 'none'; frame-ancestors 'none'; sandbox"],
  ...['cross-origin-resource-policy', 'same-origin', 'referrer-policy', 'no-referrer'],
  ...['cache-control', 'private, no-cache', 'vary', 'Cookie'],
]
const PASSED = ['content-type', 'etag', 'last-modified', 'content-length']
let count = 0

const limits = { requestTimeout: 60_000, headersTimeout: 30_000, connectionsCheckingInterval: 5_000 }
const server = createServer(limits, (request, response) => {
  let controller
  const { accept, 'accept-encoding': coding = 'identity', 'accept-language': language } = request.headers
  const sent = ['authorization', AUTHORIZATION, 'accept', accept ?? '*/*', 'content-type', 'application/json']
  sent.push('via', '1.1 bff', 'accept-encoding', coding)
  if (language !== undefined) sent.push('accept-language', language)
  const handler = {
    onRequestStart(started) {
      controller = started
    },
    onResponseStart(_controller, status, headers) {
      const fields = [...OWN]
      for (const name of PASSED) if (headers[name] !== undefined) fields.push(name, headers[name])
      count += 1
      fields.push('x-request-id', `9f48e04b44df-${count.toString(36)}`)
      response.writeHead(status, fields)
    },
    onResponseData(_controller, chunk) {
      if (response.write(chunk)) return
      controller.pause()
      response.once('drain', () => controller.resume())
    },
    onResponseEnd() {
      response.end()
    },
    onResponseError() {
      response.destroy()
    },
  }
  pool.dispatch({ path: `${request.url}?format=JSON`, method: 'GET', headers: sent }, handler)
  response.on('close', () => {
    if (!response.writableFinished) controller?.abort(new Error('gone'))
  })
})
server.timeout = 600_000
server.keepAliveTimeout = 72_000
server.listen(Number(process.env.PORT), '127.0.0.1')
