// Lower bounds, without checks and limits. For Node: node:http for requests, undici's dispatch for upstream. With FLOOR: for
// our packages, with our header fields: Fastify finds the route, and no session is verified.
import { createServer } from 'node:http'
import { Pool } from 'undici'

const { PORT, UPSTREAM_URL, REDIS_PORT, FLOOR } = process.env
const pool = new Pool(UPSTREAM_URL, { connections: 128, pipelining: 1 })
const authorization = `Bearer ${'a'.repeat(800)}`
const NOT_PASSED = new Set(['connection', 'keep-alive', 'transfer-encoding'])
const OURS = Object.entries({
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'; sandbox",
  vary: 'Cookie',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-request-id': '1',
}).flat()

function serve(request, response) {
  let controller
  const { accept = '*/*', 'accept-encoding': coding, 'accept-language': language } = request.headers
  const sent = ['authorization', authorization, 'accept', accept]
  if (FLOOR) {
    sent.push('user-agent', 'token-handler-bff', 'x-request-id', '1', 'via', '1.1 bff')
    sent.push('content-type', accept, 'accept-encoding', coding, 'accept-language', language)
  }
  const handler = {
    onRequestStart(started) {
      controller = started
    },
    onResponseStart(_controller, status, headers) {
      const passed = FLOOR ? [...OURS] : []
      for (const name in headers) if (!NOT_PASSED.has(name)) passed.push(name, headers[name])
      response.writeHead(status, passed)
    },
    onResponseData(_controller, chunk) {
      // With our packages as this server does it: a text joins the head in one write.
      if (response.write(FLOOR ? chunk.toString('latin1') : chunk, 'latin1')) return
      controller.pause()
      response.once('drain', () => controller.resume())
    },
    onResponseEnd() {
      if (FLOOR) process.nextTick(() => response.end())
      else response.end()
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

/** What a kind of floor adds to each call, before `proceed`. */
const WORK = {
  fastify: () => (_reply, proceed) => proceed(),

  async redis() {
    const { Redis } = await import('ioredis')
    const redis = new Redis({ port: Number(REDIS_PORT), enableAutoPipelining: true })
    return (_reply, proceed) => redis.getrange('session', 0, 511).then(proceed)
  },

  async recent() {
    const ask = await WORK.redis()
    const askedAt = new Map()
    return (reply, proceed) => {
      const { cookie } = reply.request.headers
      const now = performance.now()
      if (now - askedAt.get(cookie) < 1_000) return proceed()
      askedAt.set(cookie, now)
      ask(reply, proceed)
    }
  },

  async log() {
    const { pino } = await import('pino')
    const log = pino(pino.destination({ sync: false, minLength: 4_096 }))
    return ({ raw }, proceed) => {
      const { method, url: path } = raw.req
      const line = { event: 'request', reqId: '1', method, path, operation: 'GetFlux', wac: 'small' }
      const at = performance.now()
      raw.on('close', () => {
        log.info({ ...line, recordKey: '0', status: raw.statusCode, ms: performance.now() - at })
      })
      proceed()
    }
  },
}

async function startFastify() {
  const { default: Fastify } = await import('fastify')
  const work = await WORK[FLOOR]()
  const server = Fastify({ keepAliveTimeout: 72_000 })
  server.get('/flux/:wac/:fluxId', ({ raw }, reply) => {
    reply.hijack()
    work(reply, () => serve(raw, reply.raw))
  })
  await server.listen({ port: Number(PORT), host: '127.0.0.1' })
}

if (FLOOR) await startFastify()
else createServer({ keepAliveTimeout: 72_000 }, serve).listen(Number(PORT), '127.0.0.1')
// An orderly end, so that `--cpu-prof` writes its file.
process.on('SIGTERM', () => process.exit(0))
