import net, { type Socket } from 'node:net'
import type { Teardown } from '../helpers/child.ts'
import { listenOnLoopback } from '../helpers/ports.ts'

/** A TCP proxy between a client and a server, with faults that the test controls. */
export interface Proxy {
  readonly port: number
  /** Open connections silently stop carrying data, without a reset. New connections work. */
  freezeOpen(): void
  /** New and open connections carry no data until `thaw`. */
  freeze(): void
  thaw(): void
  /** Resets open connections, and new ones as soon as they are accepted, until `heal`. */
  cut(): void
  heal(): void
  /** Holds what the server sends on any connection, until `release`. */
  hold(): void
  release(): void
  /** Delays what the server sends by this many milliseconds. Data in flight arrives even after `freeze`. */
  delayAnswers(ms: number): void
  /** Sends new connections to another server. */
  turnTo(port: number): void
  /** Resets the open connections of clients with this `CLIENT SETNAME`. */
  cutNamed(clientName: string): void
  /** Resets the next `times` connections on which the client sends this command. */
  cutAt(command: string, times: number): void
  /**
   * Holds the replies on the connection that next sends this text, and calls `onMet` at once. The server executes the
   * commands. `release` lets the replies through.
   */
  holdAnswers(text: string, onMet?: () => void): { wasMet(): boolean; release(): void }
  /** Number of connections that are still to be reset. */
  cutsLeft(): number
  /** Number of connections accepted so far. */
  made(): number
}

/** `rewrite`: changes what the server sends. */
export async function startProxy(
  t: Teardown,
  firstPort: number,
  rewrite: (data: Buffer) => Buffer = (data) => data,
): Promise<Proxy> {
  const open = new Map<Socket, Socket>()
  const handshakes = new Map<Socket, string>()
  let targetPort = firstPort
  const frozen = new Set<Socket>()
  let freezing = false
  let cutting = false
  let holding = false
  let delayMs = 0
  let made = 0
  let cuts = { command: '', left: 0 }
  let onSending: ((data: Buffer, upstream: Socket) => void) | null = null

  const server = net.createServer((client) => {
    made += 1
    if (cutting) return void client.on('error', () => {}).destroy()
    const upstream = net.connect(targetPort, '127.0.0.1')
    open.set(client, upstream)
    if (freezing) frozen.add(client)
    client.on('data', (data) => {
      if (frozen.has(client)) return
      const handshake = handshakes.get(client) ?? ''
      if (handshake.length < 1_000) handshakes.set(client, handshake + data.toString('latin1'))
      if (cuts.left > 0 && data.toString('latin1').toLowerCase().includes(`\r\n${cuts.command}\r\n`)) {
        cuts.left -= 1
        client.destroy()
        return
      }
      onSending?.(data, upstream)
      upstream.write(data)
    })
    upstream.on('data', (received) => {
      if (frozen.has(client)) return
      const data = rewrite(received)
      if (delayMs === 0) client.write(data)
      else setTimeout(() => client.write(data), delayMs)
    })
    if (holding) upstream.pause()
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      one.on('error', () => {})
      one.on('close', () => {
        open.delete(client)
        frozen.delete(client)
        handshakes.delete(client)
        other.destroy()
      })
    }
  })

  return {
    port: await listenOnLoopback(t, server),
    freezeOpen() {
      for (const socket of open.keys()) frozen.add(socket)
    },
    freeze() {
      freezing = true
      for (const socket of open.keys()) frozen.add(socket)
    },
    thaw() {
      freezing = false
    },
    cut() {
      cutting = true
      for (const socket of open.keys()) socket.destroy()
    },
    heal() {
      cutting = false
    },
    hold() {
      holding = true
      for (const upstream of open.values()) upstream.pause()
    },
    release() {
      holding = false
      for (const upstream of open.values()) upstream.resume()
    },
    delayAnswers(ms) {
      delayMs = ms
    },
    turnTo(port) {
      targetPort = port
    },
    cutNamed(clientName) {
      for (const [socket, text] of handshakes) if (text.includes(clientName)) socket.destroy()
    },
    cutAt(command, times) {
      cuts = { command, left: times }
    },
    holdAnswers(text, onMet) {
      let held: Socket | null = null
      onSending = (data, upstream) => {
        if (held !== null || !data.includes(text)) return
        held = upstream
        upstream.pause()
        onMet?.()
      }
      return {
        wasMet: () => held !== null,
        release() {
          onSending = null
          held?.resume()
        },
      }
    },
    cutsLeft: () => cuts.left,
    made: () => made,
  }
}
