import { once } from 'node:events'
import net, { type AddressInfo, type Socket } from 'node:net'

/**
 * How a link treats what passes. `cut`: connections are reset, new ones as soon as they are made. `frozen`: nothing
 * passes in either direction, and what was sent arrives afterwards. `replies-held`: requests pass, replies arrive
 * afterwards. `slow`: everything arrives late.
 */
type LinkState = 'open' | 'cut' | 'frozen' | 'replies-held' | 'slow'

/** The network between one client and one server: a TCP proxy of its own. */
export interface Link {
  readonly port: number
  /** `delayMs` is for `slow`. */
  set(state: LinkState, delayMs?: number): void
  /** Resets the open connections; new ones work. */
  reset(): void
  /** Connections that the client has open. One that it gave up while nothing passes is none. */
  connections(): number
  close(): void
}

interface Options {
  readonly targetPort: number
  /** Rewrites what the server sends, for each connection again. */
  readonly translator?: () => (data: Buffer) => Buffer
  /** Which port to listen on; default: any. */
  readonly port?: number
}

/** Listens until `close`. */
export async function startLink({ targetPort, translator, port = 0 }: Options): Promise<Link> {
  const pairs = new Set<readonly [Flow, Flow]>()
  const clients = new Set<Socket>()
  let state: LinkState = 'open'
  let delayMs = 0

  const server = net.createServer({ noDelay: true }, (client) => {
    client.on('error', () => {})
    if (state === 'cut') return resetConnection(client)
    const upstream = net.connect({ port: targetPort, host: '127.0.0.1', noDelay: true })
    upstream.on('error', () => {})
    const delay = () => (state === 'slow' ? delayMs : 0)
    const passesUp = () => state !== 'frozen'
    const passesDown = () => state !== 'frozen' && state !== 'replies-held'
    const up = createFlow(client, upstream, { passes: passesUp, delay })
    const down = createFlow(upstream, client, {
      passes: passesDown,
      delay,
      ...(translator === undefined ? {} : { translate: translator() }),
    })
    const pair = [up, down] as const
    pairs.add(pair)
    clients.add(client)
    for (const event of ['end', 'close']) client.once(event, () => clients.delete(client))
    let closed = 0
    for (const socket of [client, upstream]) {
      socket.once('close', () => {
        closed += 1
        if (closed === 2) pairs.delete(pair)
      })
    }
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')

  function reset(): void {
    for (const [up, down] of pairs) {
      up.reset()
      down.reset()
    }
  }

  return {
    port: (server.address() as AddressInfo).port,
    set(next, ms = 0) {
      state = next
      delayMs = ms
      if (next === 'cut') reset()
      else for (const pair of pairs) for (const flow of pair) flow.pump()
    },
    reset,
    connections: () => clients.size,
    close() {
      reset()
      server.close()
    },
  }
}

/**
 * Resets a connection. One whose end is on its way is closed: there Node 20 fails with EINVAL, never closes the socket, and
 * does not leave the process at its exit.
 */
export function resetConnection(socket: Socket): void {
  if (socket.writableEnded && !socket.writableFinished) socket.destroy()
  else socket.resetAndDestroy()
}

interface Flow {
  pump(): void
  reset(): void
}

/** One direction of a connection. The end of the connection waits in the queue behind the data. */
function createFlow(
  from: Socket,
  to: Socket,
  {
    passes,
    delay,
    translate = null,
  }: { passes: () => boolean; delay: () => number; translate?: ((data: Buffer) => Buffer) | null },
): Flow {
  const queue: { data: Buffer | null; dueAt: number }[] = []
  let timer: NodeJS.Timeout | null = null
  let flushTimer: NodeJS.Timeout | null = null

  function push(data: Buffer | null): void {
    queue.push({ data, dueAt: performance.now() + delay() })
    pump()
  }

  function pump(): void {
    if (timer !== null) clearTimeout(timer)
    timer = null
    while (queue.length > 0 && passes()) {
      const { data, dueAt } = queue[0]!
      const waitMs = dueAt - performance.now()
      if (waitMs > 1) {
        timer = setTimeout(pump, waitMs)
        return
      }
      queue.shift()
      if (data === null) to.destroy()
      else if (!to.destroyed) to.write(data)
    }
  }

  from.on('data', (data: Buffer) => {
    if (translate === null) return push(data)
    if (flushTimer !== null) clearTimeout(flushTimer)
    flushTimer = null
    const translated = translate(data)
    if (translated.length > 0) push(translated)
    // Bytes that the translator held back for a remainder that never arrives.
    flushTimer = setTimeout(() => {
      const rest = translate(EMPTY)
      if (rest.length > 0) push(rest)
    }, 50)
  })
  from.once('close', () => {
    if (flushTimer !== null) clearTimeout(flushTimer)
    push(null)
  })

  return {
    pump,
    reset() {
      queue.length = 0
      if (timer !== null) clearTimeout(timer)
      if (!from.destroyed) resetConnection(from)
    },
  }
}

const EMPTY = Buffer.alloc(0)

/** An address in a reply of Redis or of a Sentinel, in each of the forms in which they write one. */
const ADDRESS =
  /((?:127\.0\.0\.1(?:[: ,]|\r\n\$5\r\n|\r\n:))|(?:\bport\r\n(?:\$5\r\n|:))|(?:_port:))(\d{5})(?!\d)/g
/** Such an address, broken off. */
const BROKEN_OFF = /(?:127\.0\.0\.1|port)(?:[: ,]|\r(?:\n(?:\$(?:5(?:\r\n?)?)?|:)?)?)?\d{0,4}$|_port:\d{0,4}$/

/**
 * Replaces the ports of Redis nodes and Sentinels by the ports of links in front of them. Every port has five digits, so
 * the lengths in the protocol stay right.
 */
export function createPortTranslator(ports: ReadonlyMap<number, number>): (data: Buffer) => Buffer {
  let held = ''

  return (data) => {
    const flushing = data.length === 0
    if (held === '' && (flushing || !mayHoldAddress(data))) return data
    let text = held + data.toString('latin1')
    held = ''
    if (!flushing) {
      const at = endsInside(text)
      held = text.slice(at)
      text = text.slice(0, at)
    }
    const replaced = text.replace(ADDRESS, (all, front: string, port: string) => {
      const link = ports.get(Number(port))
      return link === undefined ? all : `${front}${link}`
    })
    return Buffer.from(replaced, 'latin1')
  }
}

const MARKS = ['127.0.0.1', 'port'].map((text) => Buffer.from(text, 'latin1'))

function mayHoldAddress(data: Buffer): boolean {
  if (MARKS.some((mark) => data.includes(mark))) return true
  // A mark may be broken off as well; a whole reply ends with a line.
  return data.at(-1) !== 10
}

/** From where on the text may be the first part of an address whose rest is still to come. */
function endsInside(text: string): number {
  const broken = BROKEN_OFF.exec(text.slice(-64))
  if (broken !== null) return text.length - Math.min(64, text.length) + broken.index
  if (text.endsWith('\n')) return text.length
  const at = Math.max(0, text.length - 32)
  // Not in the middle of one.
  const begun = MARKS.map((mark) => text.lastIndexOf(mark.toString('latin1'), at)).filter(
    (mark) => mark > at - 24,
  )
  return Math.max(0, Math.min(at, ...begun))
}
