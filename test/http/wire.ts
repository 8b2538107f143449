import net, { type AddressInfo } from 'node:net'
import { requireDocumented } from '../helpers/documented.ts'
import type { Bff } from '../helpers/system.ts'
import { PATIENCE_MS } from '../helpers/wait.ts'

/** One response as it stood on the wire. */
export interface WireAnswer {
  status: number
  /** Lower-case names; a repeated field keeps all its values. */
  headers: Map<string, string[]>
  /** Decoded from its framing. */
  body: string
}

export interface Heard {
  /** Every response that came on the connection, in order. */
  answers: WireAnswer[]
  /** What came after the last whole response. */
  rest: string
  /** Whether the server closed the connection. */
  closed: boolean
}

export interface Question {
  method?: string
  target?: string
  /** Pairs, so that a name may stand twice and in any case. */
  headers?: readonly (readonly [name: string, value: string])[]
  body?: string
  /** A body without a length, in two chunks. */
  chunked?: string
  /** Leave out the Host line that each request needs. */
  noHost?: boolean
}

/** What a page of our own origin says of its request. */
export const OWN: readonly [string, string] = ['Sec-Fetch-Site', 'same-origin']

export function portOf(bff: Bff): number {
  return (bff.app.server.server.address() as AddressInfo).port
}

/** Writes these bytes and listens until the server closes the connection. Throws if a response is not as documented. */
export function speak(port: number, bytes: string | Buffer): Promise<Heard> {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, '127.0.0.1', () => socket.write(bytes))
    const chunks: Buffer[] = []
    let closed = false
    socket.setTimeout(PATIENCE_MS, () => socket.destroy())
    socket.on('data', (chunk: Buffer) => chunks.push(chunk))
    socket.on('end', () => {
      closed = true
    })
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNRESET' || error.code === 'EPIPE') closed = true
      else reject(error)
    })
    socket.on('close', () => {
      try {
        resolve({ ...readAnswers(port, String(bytes), Buffer.concat(chunks)), closed })
      } catch (error) {
        reject(error as Error)
      }
    })
  })
}

/** The responses of the server on this port to these bytes. Throws if one is not as documented. */
export function readAnswers(port: number, sent: string, received: Buffer): Pick<Heard, 'answers' | 'rest'> {
  const read = parseAnswers(received, sent.startsWith('HEAD '))
  const asked = [...sent.matchAll(/^([A-Z]+) (\S+) HTTP\/1\.1\r$/gm)]
  for (const [at, answer] of read.answers.entries()) {
    // Bytes that are no request, or that hide one in a body, leave open which response belongs to which.
    const [, method = '', target = ''] = (asked.length === read.answers.length && asked[at]) || []
    const { status, body } = answer
    requireDocumented(port, { method, target, status, header: (name) => field(answer, name), body })
  }
  return read
}

/** One request on a connection of its own, written by hand. Throws unless exactly one answer comes. */
export async function ask(port: number, question: Question = {}): Promise<WireAnswer> {
  const { method = 'GET', target = '/', headers = [], body, chunked, noHost = false } = question
  const lines = [
    `${method} ${target} HTTP/1.1`,
    ...(noHost ? [] : [`Host: localhost:${port}`]),
    'Connection: close',
    ...(body === undefined ? [] : [`Content-Length: ${Buffer.byteLength(body)}`]),
    ...headers.map(([name, value]) => `${name}: ${value}`),
  ]
  const sent = chunked === undefined ? (body ?? '') : inChunks(chunked)
  const heard = await speak(port, `${lines.join('\r\n')}\r\n\r\n${sent}`)
  const [answer] = heard.answers
  if (answer === undefined || heard.answers.length > 1 || heard.rest !== '') {
    throw new Error(`not exactly one answer to ${method} ${target}: ${JSON.stringify(heard)}`)
  }
  return answer
}

function inChunks(text: string): string {
  const middle = text.length >> 1
  const chunks = [text.slice(0, middle), text.slice(middle), '']
  return chunks.map((chunk) => `${Buffer.byteLength(chunk).toString(16)}\r\n${chunk}\r\n`).join('')
}

/** The one value of a response field; undefined when it is absent, both values when it is repeated. */
export function field(answer: WireAnswer, name: string): string | undefined {
  return answer.headers.get(name)?.join(' AND ')
}

export function problemOf(answer: WireAnswer): Record<string, unknown> {
  return JSON.parse(answer.body) as Record<string, unknown>
}

function parseAnswers(bytes: Buffer, bodiless: boolean): Pick<Heard, 'answers' | 'rest'> {
  const answers: WireAnswer[] = []
  let text = bytes.toString('latin1')
  for (;;) {
    const end = text.indexOf('\r\n\r\n')
    if (end < 0 || !text.startsWith('HTTP/1.1 ')) return { answers, rest: text }
    const [start = '', ...lines] = text.slice(0, end).split('\r\n')
    const headers = new Map<string, string[]>()
    for (const line of lines) {
      const colon = line.indexOf(':')
      const name = line.slice(0, colon).toLowerCase()
      headers.set(name, [...(headers.get(name) ?? []), line.slice(colon + 1).trim()])
    }
    const status = Number(start.split(' ')[1])
    text = text.slice(end + 4)
    let body = ''
    if (status !== 204 && status !== 304 && status >= 200 && !bodiless) {
      if (headers.get('transfer-encoding')?.[0] === 'chunked') [body, text] = readChunks(text)
      else {
        const length = Number(headers.get('content-length')?.[0] ?? text.length)
        body = text.slice(0, length)
        text = text.slice(length)
      }
    }
    if (status >= 200) answers.push({ status, headers, body: Buffer.from(body, 'latin1').toString('utf8') })
  }
}

function readChunks(text: string): [body: string, rest: string] {
  let body = ''
  let left = text
  for (;;) {
    const end = left.indexOf('\r\n')
    const size = Number.parseInt(left.slice(0, end), 16)
    if (!(size > 0)) return [body, left.slice(left.indexOf('\r\n\r\n') + 4)]
    body += left.slice(end + 2, end + 2 + size)
    left = left.slice(end + 2 + size + 2)
  }
}
