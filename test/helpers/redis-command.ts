// One Redis command on its own connection, without ioredis, which is tested. redis-cli would be a process for each command.

import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'

export interface CommandOptions {
  /** With TLS, and this CA certificate (PEM). The host name is not checked. */
  readonly ca?: Buffer | undefined
  readonly password?: string | undefined
}

const TIMEOUT_MS = 20_000

/**
 * Sends one command to a Redis on 127.0.0.1 on its own connection. The reply has the form that redis-cli prints
 * to a pipe: one line per element, an empty one for nil. An error reply throws an Error with its text.
 */
export async function redisCommand(
  port: number,
  args: readonly string[],
  { ca, password }: CommandOptions = {},
): Promise<string> {
  const at = { host: '127.0.0.1', port }
  const socket =
    ca === undefined ? connect(at) : connectTls({ ...at, ca, checkServerIdentity: () => undefined })
  try {
    if (password !== undefined) await send(socket, ['AUTH', password])
    return await send(socket, args)
  } finally {
    socket.destroy()
  }
}

function send(socket: Socket, args: readonly string[]): Promise<string> {
  const parts = args.map((arg) => `$${Buffer.byteLength(arg)}\r\n${arg}\r\n`)
  socket.write(`*${args.length}\r\n${parts.join('')}`)
  return new Promise((resolve, reject) => {
    let received = Buffer.alloc(0)
    socket.on('data', (data) => {
      received = Buffer.concat([received, data])
      const reply = readReply(received, 0)
      if (reply === null) return
      // A reset after the reply is harmless.
      socket.removeAllListeners().on('error', () => {})
      if (reply.error) reject(new Error(reply.text))
      else resolve(reply.text)
    })
    socket.on('error', reject)
    socket.on('close', () => reject(new Error('Redis closed the connection')))
    socket.setTimeout(TIMEOUT_MS, () => reject(new Error(`no reply to ${args[0]} within 20 s`)))
  })
}

interface Reply {
  readonly text: string
  readonly error: boolean
  /** Offset of the next reply. */
  readonly end: number
}

/** The RESP2 reply that begins at `from`; null while it is incomplete. */
function readReply(bytes: Buffer, from: number): Reply | null {
  const lineEnd = bytes.indexOf('\r\n', from)
  if (lineEnd < 0) return null
  const kind = String.fromCharCode(bytes[from]!)
  const line = bytes.toString('utf8', from + 1, lineEnd)
  const next = lineEnd + 2
  if (kind === '$') {
    const length = Number(line)
    if (length < 0) return { text: '', error: false, end: next }
    const end = next + length + 2
    return bytes.length < end
      ? null
      : { text: bytes.toString('utf8', next, next + length), error: false, end }
  }
  if (kind !== '*') return { text: line, error: kind === '-', end: next }
  const texts: string[] = []
  let end = next
  for (let count = Number(line); count > 0; count -= 1) {
    const element = readReply(bytes, end)
    if (element === null) return null
    texts.push(element.text)
    end = element.end
  }
  return { text: texts.join('\n'), error: false, end }
}
