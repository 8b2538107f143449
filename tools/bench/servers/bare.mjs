// The lower bound for Node: node:http for requests, undici's dispatch for upstream, no checks, no limits.
import { createServer } from 'node:http'
import { Pool } from 'undici'

const pool = new Pool(process.env.UPSTREAM_URL, { connections: 128, pipelining: 1 })
const authorization = `Bearer ${'a'.repeat(800)}`
const NOT_PASSED = new Set(['connection', 'keep-alive', 'transfer-encoding'])

const server = createServer((request, response) => {
  let controller
  const sent = ['authorization', authorization, 'accept', request.headers.accept ?? '*/*']
  const handler = {
    onRequestStart(started) {
      controller = started
    },
    onResponseStart(_controller, status, headers) {
      const passed = []
      for (const name in headers) if (!NOT_PASSED.has(name)) passed.push(name, headers[name])
      response.writeHead(status, passed)
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
  pool.dispatch({ path: request.url, method: 'GET', headers: sent }, handler)
  response.on('close', () => {
    if (!response.writableFinished) controller?.abort(new Error('gone'))
  })
})
server.keepAliveTimeout = 72_000
server.listen(Number(process.env.PORT), '127.0.0.1')
// An orderly end, so that `--cpu-prof` writes its file.
process.on('SIGTERM', () => process.exit(0))
