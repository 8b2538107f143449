import net, { type Socket } from 'node:net'
import type { Teardown } from './child.ts'
import { listenOnLoopback } from './ports.ts'

export type TcpProxy = Awaited<ReturnType<typeof startProxy>>

/**
 * A TCP proxy between a client and a server, with faults that the test controls. `firstPort` 0: `turnTo` names the server before
 * the first connection. `rewrite`: changes what the server sends.
 */
export async function startProxy(
  t: Teardown,
  firstPort: number,
  rewrite: (data: Buffer) => Buffer = (data) => data,
) {
  const open = new Map<Socket, Socket>()
  let targetPort = firstPort
  const frozen = new Set<Socket>()
  let freezing = false
  let cutting = false
  let holding = false
  let made = 0
  const openings: Buffer[] = []
  let cutsAt = ''
  let onSending: ((data: Buffer, upstream: Socket) => void) | null = null

  const server = net.createServer((client) => {
    made += 1
    if (cutting) return void client.on('error', () => {}).destroy()
    const upstream = net.connect(targetPort, '127.0.0.1')
    open.set(client, upstream)
    if (freezing) frozen.add(client)
    client.once('data', (data) => openings.push(data))
    client.on('data', (data) => {
      if (frozen.has(client)) return
      if (cutsAt !== '' && data.toString('latin1').toLowerCase().includes(`\r\n${cutsAt}\r\n`)) {
        cutsAt = ''
        client.destroy()
        return
      }
      onSending?.(data, upstream)
      upstream.write(data)
    })
    upstream.on('data', (data) => {
      if (!frozen.has(client)) client.write(rewrite(data))
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
        other.destroy()
      })
    }
  })

  return {
    port: await listenOnLoopback(t, server),
    /** Open connections silently stop carrying data, and new ones until `thaw`. */
    freeze(): void {
      freezing = true
      for (const socket of open.keys()) frozen.add(socket)
    },
    thaw(): void {
      freezing = false
    },
    /** Resets open connections, and new ones as soon as they are accepted, until `heal`. */
    cut(): void {
      cutting = true
      for (const socket of open.keys()) socket.destroy()
    },
    heal(): void {
      cutting = false
    },
    /** Holds what the server sends on any connection, until `release`. */
    hold(): void {
      holding = true
      for (const upstream of open.values()) upstream.pause()
    },
    release(): void {
      holding = false
      for (const upstream of open.values()) upstream.resume()
    },
    /** Sends new connections to another server. */
    turnTo(port: number): void {
      targetPort = port
    },
    /** Resets the next connection on which the client sends this command. */
    cutAt(command: string): void {
      cutsAt = command
    },
    /**
     * Holds the replies on the connection that next sends this text, and calls `onMet` at once. The server executes the
     * commands. `release` lets the replies through.
     */
    holdAnswers(text: string, onMet?: () => void) {
      let held: Socket | null = null
      onSending = (data, upstream) => {
        if (held !== null || !data.includes(text)) return
        held = upstream
        upstream.pause()
        onMet?.()
      }
      return {
        wasMet: () => held !== null,
        release(): void {
          onSending = null
          held?.resume()
        },
      }
    },
    /** The first data that the client has sent on each connection. */
    openings: (): readonly Buffer[] => openings,
    /** Number of connections accepted so far. */
    made: () => made,
  }
}
