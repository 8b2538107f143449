import type { ServerResponse } from 'node:http'
import net from 'node:net'
import t, { type Test } from 'tap'
import { portOfUrl } from '../helpers/ports.ts'
import { shared } from '../helpers/shared.ts'
import { until } from '../helpers/wait.ts'
import { withHooks } from './hooks-server.ts'
import { ask, OWN, problemOf } from './wire.ts'

// Node takes a head of 16 KB. What is done once for each part of it can cost a hundred times what the response does.

/** The texts that this global function gets until the end of the test. */
function watch(t: Test, owner: object, name: string): string[] {
  const texts: string[] = []
  const real = Reflect.get(owner, name) as (...given: unknown[]) => unknown
  Reflect.set(owner, name, (...given: unknown[]) => {
    texts.push(String(given[0]))
    return real(...given)
  })
  t.teardown(() => Reflect.set(owner, name, real))
  return texts
}

t.test('cookies that are not of this server are not decoded', async (t) => {
  const { port } = await shared()
  const decoded = watch(t, globalThis, 'decodeURIComponent')
  const cookie = Array.from({ length: 500 }, (_, at) => `c${at}=%E9`).join('; ')
  const headers = [['Cookie', cookie], OWN] as const
  for (const [method, target, status] of [
    ['GET', '/auth/session', 200],
    ['POST', '/auth/session', 401],
    ['POST', '/auth/logout', 204],
    ['GET', '/auth/callback/x?code=y', 400],
  ] as const)
    t.equal((await ask(port, { method, target, headers })).status, status, `${method} ${target}`)
  t.equal(decoded.filter((text) => text === '%E9').length, 0)
})

t.test('a query of more than 100 parameters begins and ends no sign-in', async (t) => {
  const { port } = await shared()
  const query = Array.from({ length: 101 }, (_, at) => `p${at}`).join('&')
  for (const path of ['/auth/login', `/auth/callback/${'A'.repeat(43)}`]) {
    const answer = await ask(port, { target: `${path}?${query}` })
    t.equal(answer.status, 400, path)
    t.match(problemOf(answer), { code: 'invalid_request', detail: /more than 100 parameters/ }, path)
  }
})

t.test(
  'of a host and a referrer that fill the head only the beginning is parsed as an address',
  async (t) => {
    const { port } = await shared()
    const parsed = watch(t, URL, 'canParse')
    const long = '\u00e9.'.repeat(2_000)
    await ask(port, { target: '/auth/login', noHost: true, headers: [['Host', long]] })
    const refused = await ask(port, { target: '/flux/a', headers: [['Referer', `http://${long}`]] })
    t.match(problemOf(refused), { code: 'cross_origin', detail: /^This request comes without an origin\./ })
    const path = `https://other.test/${long}`
    const named = await ask(port, { target: '/flux/a', headers: [['Referer', path]] })
    t.match(problemOf(named), { detail: /^This request comes from https:\/\/other\.test\./ })
    t.equal(parsed.filter((text) => text.length > 500).length, 0)
  },
)

t.test('an escaped path is decoded by the four parts that read it, and not for each method', async (t) => {
  const { port } = await shared()
  const decoded = watch(t, globalThis, 'decodeURI')
  const path = `/nothing/${'%41'.repeat(100)}`
  t.equal((await ask(port, { target: path })).status, 404)
  // The router, the table of routes, the fallback and the log, and Fastify's router where it asks again.
  const times = decoded.filter((text) => text.startsWith('/nothing/')).length
  t.ok(times > 0 && times <= 6, `${times} times, and there are nine methods`)
})

t.test('of X-Forwarded-For the end is read', async (t) => {
  const { listen } = await withHooks(t, async (request, reply) => reply.send(request.ip), {
    env: { TRUST_PROXY: '127.0.0.1' },
  })
  const port = portOfUrl(await listen())
  const trusted = '127.0.0.1, '.repeat(1_000)
  for (const [forwarded, address] of [
    ['192.0.2.1', '192.0.2.1'],
    [`${trusted}192.0.2.1`, '192.0.2.1'],
    [`192.0.2.1, ${trusted}127.0.0.1`, '127.0.0.1'],
    [`${'x'.repeat(10_000)}, 192.0.2.1`, '192.0.2.1'],
  ] as const) {
    const { body } = await ask(port, { headers: [['X-Forwarded-For', forwarded]] })
    t.equal(body, address, forwarded.slice(0, 20))
  }
})

t.test('no header lines of a browser hide the X-Forwarded-For that a reverse proxy puts last', async (t) => {
  const { listen } = await withHooks(t, async (request, reply) => reply.send(request.ip), {
    env: { TRUST_PROXY: '127.0.0.1' },
  })
  const port = portOfUrl(await listen())
  const forwarded = ['X-Forwarded-For', '192.0.2.1'] as const
  for (const [lines, status, body] of [
    [900, 200, /^192\.0\.2\.1$/],
    [1_500, 431, /"code":"headers_too_large"/],
  ] as const) {
    const headers = [...Array<readonly [string, string]>(lines).fill(['A', 'b']), forwarded]
    t.match(await ask(port, { headers }), { status, body }, `${lines} lines`)
  }
})

t.test('each packet behind a fault of the syntax leaves nothing', async (t) => {
  let release = (): void => {}
  const held = new Promise<void>((resolve) => {
    release = resolve
  })
  const responses: ServerResponse[] = []
  const { listen, server } = await withHooks(t, async (_request, reply) => {
    await held
    return reply.send('late')
  })
  let faults = 0
  server.server.prependListener('request', (_request, response: ServerResponse) => responses.push(response))
  server.server.prependListener('clientError', () => {
    faults += 1
  })
  const socket = net.connect(portOfUrl(await listen()), '127.0.0.1')
  t.teardown(() => socket.destroy())
  let text = ''
  socket.setEncoding('utf8').on('data', (part: string) => {
    text += part
  })
  socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  await until('it is held', () => responses.length > 0)
  const [response] = responses
  const counts: number[] = []
  for (let packets = 1; packets <= 3; packets += 1) {
    socket.write('no request\r\n')
    await until('the packet is read', () => faults >= packets)
    counts.push(response!.listenerCount('close'))
  }
  t.equal(counts[2], counts[0])
  release()
  await until('the response and the end are here', () => socket.readableEnded)
  t.match(text, /^HTTP\/1\.1 200 OK\r\n.*late$/s)
})
