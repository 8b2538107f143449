import { once } from 'node:events'
import net, { type AddressInfo, type Socket } from 'node:net'
import type { Teardown } from '../helpers/child.ts'

/** A network between a client and a server that fails as it is told to. */
export interface Proxy {
  readonly port: number
  /** From now on the connections that are open carry nothing any more, and nobody is told. New ones work. */
  freezeOpen(): void
  /** New and open connections carry nothing until `thaw`. */
  freeze(): void
  thaw(): void
  /** Open connections are cut, and new ones as soon as they are made, until `heal`. */
  cut(): void
  heal(): void
  /** From now on what the server sends arrives so many milliseconds later; what is on its way arrives after `freeze` too. */
  delayAnswers(ms: number): void
  /** New connections go to another server. */
  turnTo(port: number): void
  /** Cuts the open connections whose client has given itself this name. */
  cutNamed(clientName: string): void
  /** The next so many connections are cut as soon as the client sends a command of this name. */
  cutAt(command: string, times: number): void
  /**
   * From the next sending on that holds this text, the answers on that connection are held: what is
   * asked is done, and nobody is told. `release` lets them through.
   */
  holdAnswers(text: string): { wasMet(): boolean; release(): void }
  /** How many are still to be cut. */
  cutsLeft(): number
  /** Connections that were made so far. */
  made(): number
}

export async function startProxy(t: Teardown, firstPort: number): Promise<Proxy> {
  const open = new Set<Socket>()
  const handshakes = new Map<Socket, string>()
  let targetPort = firstPort
  const frozen = new Set<Socket>()
  let freezing = false
  let cutting = false
  let delayMs = 0
  let made = 0
  let cuts = { command: '', left: 0 }
  let onSending: ((data: Buffer, upstream: Socket) => void) | null = null

  const server = net.createServer((client) => {
    made += 1
    if (cutting) return void client.on('error', () => {}).destroy()
    const upstream = net.connect(targetPort, '127.0.0.1')
    open.add(client)
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
    upstream.on('data', (data) => {
      if (frozen.has(client)) return
      if (delayMs === 0) client.write(data)
      else setTimeout(() => client.write(data), delayMs)
    })
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
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    for (const socket of open) socket.destroy()
    server.close()
  })

  return {
    port: (server.address() as AddressInfo).port,
    freezeOpen() {
      for (const socket of open) frozen.add(socket)
    },
    freeze() {
      freezing = true
      for (const socket of open) frozen.add(socket)
    },
    thaw() {
      freezing = false
    },
    cut() {
      cutting = true
      for (const socket of open) socket.destroy()
    },
    heal() {
      cutting = false
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
    holdAnswers(text) {
      let held: Socket | null = null
      onSending = (data, upstream) => {
        if (held !== null || !data.includes(text)) return
        held = upstream
        upstream.pause()
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
