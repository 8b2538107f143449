import { writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import net from 'node:net'
import t, { type Test } from 'tap'
import { shared } from '../helpers/shared.ts'
import { cookieWithoutSession } from '../helpers/system.ts'
import { unlessHeldUp } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'

const OPERATIONS_FILE = `${makeFolder('before-body')}/operations.json`
const ANY_THING = { method: 'POST', path: '/{wac}/Any/thing', body: 'any' }
writeFileSync(OPERATIONS_FILE, JSON.stringify({ operations: { AnyThing: ANY_THING } }))

const OPERATIONS = [
  { method: 'PUT', path: '/site/42' },
  { method: 'POST', path: '/data/DEMO/Any/thing' },
]

const KB = 1024
const MB = 1024 * KB
/** Answers to large bodies are lost at random where a connection ends at once. */
const TIMES = 8

interface Asked {
  status: number | undefined
  code: unknown
  connection: string | undefined
  /** Whether the server asked for the body. */
  continued: boolean
}

interface Sending {
  method: string
  path: string
  headers?: Record<string, string | number>
  body?: Buffer
  agent?: Agent
}

/** By an ordinary client, which sends the body without a look at the answer. Rejects if the connection is reset first. */
function ask(port: number, { body, headers, agent, ...operation }: Sending): Promise<Asked> {
  const own = { 'x-csrf': '1', 'content-type': 'application/json', ...headers }
  return new Promise((resolve, reject) => {
    let continued = false
    const options = { ...operation, host: '127.0.0.1', port, agent: agent ?? false, headers: own }
    const sent = request(options, async (response) => {
      let text = ''
      try {
        for await (const chunk of response.setEncoding('utf8')) text += chunk as string
        const { code } = JSON.parse(text) as Record<string, unknown>
        resolve({ status: response.statusCode, code, connection: response.headers.connection, continued })
      } catch (error) {
        reject(error as Error)
      }
    })
    sent.once('error', reject).once('continue', () => {
      continued = true
      sent.end(body)
    })
    if (headers?.expect === undefined) sent.end(body)
    else sent.flushHeaders()
  })
}

async function ready() {
  const { sandbox, bff, port } = await shared({ OPERATIONS_FILE, BODY_LIMIT_BYTES: String(10 * MB) })
  const refused = (t: Test, asked: Partial<Asked>, what: string): void => {
    t.match(asked, { status: 401, code: 'login_required' }, what)
    t.equal(sandbox.journal.entries().length, 0, what)
  }
  return { bff, port, refused }
}

t.test('a client that sends a body without a session sees the 401 and no reset', async (t) => {
  const { port, refused } = await ready()
  for (const operation of OPERATIONS) {
    for (const [what, size, headers] of [
      ['64 KB', 64 * KB, { 'content-length': 64 * KB }],
      ['more than 64 KB', 65 * KB, { 'content-length': 65 * KB }],
      ['5 MB', 5 * MB, { 'content-length': 5 * MB }],
      ['chunked', 64 * KB, { 'transfer-encoding': 'chunked' }],
      ['chunked, 5 MB', 5 * MB, { 'transfer-encoding': 'chunked' }],
    ] as const) {
      const sending = { ...operation, headers, body: Buffer.alloc(size, '[') }
      // A second after its end the server closes the connection: a machine that is held up may not have sent all by then.
      const one = () => unlessHeldUp(500, () => ask(port, sending))
      const all = await Promise.all(Array.from({ length: TIMES }, one))
      for (const asked of all) refused(t, asked, `${operation.path}, ${what}`)
    }
  }
})

t.test('a client that asks first (Expect: 100-continue) gets the 401 in place of the 100', async (t) => {
  const { port, refused } = await ready()
  const headers = { 'content-length': 5 * MB, expect: '100-continue' }
  for (const operation of OPERATIONS) {
    const asked = await ask(port, { ...operation, headers })
    refused(t, asked, operation.path)
    t.match(asked, { continued: false, connection: 'close' })
    const [, cookie] = cookieWithoutSession()
    const body = Buffer.from('{}')
    const signed = await ask(port, {
      ...operation,
      headers: { ...headers, 'content-length': 2, cookie },
      body,
    })
    t.match(signed, { status: 401, continued: true }, 'a cookie that verifies')
  }
})

t.test('a client that is slow has the 401 before it has sent its body, and may send the rest', async (t) => {
  const { port } = await ready()
  for (const { method, path } of OPERATIONS) {
    for (const framing of ['Content-Length: 4', `Content-Length: ${MB}`, 'Transfer-Encoding: chunked']) {
      const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true })
      const lines = [`${method} ${path} HTTP/1.1`, 'Host: a', 'X-CSRF: 1', framing]
      let text = ''
      const answered = new Promise<void>((resolve, reject) => {
        socket.setEncoding('utf8').on('data', (part: string) => {
          text += part
          if (text.endsWith('}')) resolve()
        })
        socket.once('error', reject)
      })
      socket.write(`${lines.join('\r\n')}\r\n\r\n1`)
      await answered
      t.match(text, /^HTTP\/1\.1 401 [\s\S]*"login_required"/, `${path}, ${framing}`)
      const errors: Error[] = []
      socket.removeAllListeners('error').on('error', (error) => errors.push(error))
      const rest = framing === 'Content-Length: 4' ? '234' : '\r\n1\r\n0\r\n'
      await new Promise((resolve) => socket.end(rest, resolve as () => void))
      t.strictSame(errors, [])
      socket.destroy()
    }
  }
})

t.test('after a short body the connection is used again, after a long one it ends', async (t) => {
  const { bff, port, refused } = await ready()
  let connections = 0
  const count = (): void => {
    connections += 1
  }
  bff.app.server.server.on('connection', count)
  t.teardown(() => bff.app.server.server.off('connection', count))
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  t.teardown(() => agent.destroy())
  const send = async (size: number): Promise<Asked> => {
    const sending = { method: 'PUT', path: '/site/42', body: Buffer.alloc(size, '['), agent }
    const asked = await ask(port, { ...sending, headers: { 'content-length': size } })
    refused(t, asked, `${size} bytes`)
    return asked
  }
  for (const size of [2, 64 * KB, 2]) t.match(await send(size), { connection: 'keep-alive' })
  t.equal(connections, 1)
  t.match(await send(64 * KB + 1), { connection: 'close' })
})
