// The least that forwards a response: undici's dispatch, no checks, no limits.
import { Pool } from 'undici'

const pool = new Pool(process.env.UPSTREAM_URL, { connections: 128, pipelining: 1 })
const authorization = `Bearer ${'a'.repeat(800)}`
const NOT_PASSED = new Set(['connection', 'keep-alive', 'transfer-encoding'])

/** Answers a GET with what the upstream sends, by Node's own request and response. */
export function forward(request, response) {
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
}
