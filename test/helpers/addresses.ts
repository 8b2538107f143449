// Names with several addresses, and addresses on which no connection is made.

import dns from 'node:dns'
import { once } from 'node:events'
import net from 'node:net'
import { startChild, type Teardown, waitForOutput } from './child.ts'

/** In this process each of these names has these addresses, in this order. `onLookup`: its connection begins after this turn. */
export function nameAddresses(
  t: Teardown,
  names: Readonly<Record<string, readonly string[]>>,
  onLookup: (name: string) => void = () => {},
): void {
  const { lookup } = dns
  const named = (name: string, options: dns.LookupOptions, done: (...result: unknown[]) => void): void => {
    const addresses = names[name]
    if (addresses === undefined) return void Reflect.apply(lookup, dns, [name, options, done])
    const all = addresses.map((address) => ({ address, family: 4 }))
    process.nextTick(() => {
      if (options.all) done(null, all)
      else done(null, all[0]!.address, 4)
      onLookup(name)
    })
  }
  dns.lookup = named as typeof dns.lookup
  t.teardown(() => {
    dns.lookup = lookup
  })
}

/** More than the queue of a listener for one connection takes. */
const FILLERS = 8

/**
 * An address whose system drops every attempt to connect, as a host that cannot be reached. From `open` on it leads to
 * `targetPort` of 127.0.0.1: an attempt of before is made again by the system after a second.
 */
export async function startSilentAddress(
  t: Teardown,
  address: { host: string; port: number },
  targetPort = 9,
): Promise<{ open(): void; close(): Promise<void> }> {
  const program = `
    require('node:net').createServer((client) => {
      const server = require('node:net').connect(${targetPort}, '127.0.0.1')
      client.pipe(server).pipe(client)
      for (const [one, other] of [[client, server], [server, client]]) one.on('error', () => other.destroy())
    }).listen({ host: '${address.host}', port: ${address.port}, backlog: 1 }, () => console.log('listens'))`
  const child = startChild(t, process.execPath, ['-e', program])
  const listens = await waitForOutput(child, (text) => (text.includes('listens') ? true : null))
  if (listens === null) throw new Error(child.output())
  child.send('SIGSTOP')
  const fillers = Array.from({ length: FILLERS }, () => net.connect(address).on('error', () => {}))
  const drop = (): void => {
    for (const filler of fillers) filler.destroy()
  }
  t.teardown(drop)
  // The system has answered all it can in the turn in which they were made.
  await Promise.race(fillers.map((filler) => once(filler, 'connect')))
  return {
    open(): void {
      drop()
      child.send('SIGCONT')
    },
    async close(): Promise<void> {
      drop()
      await child.stop('SIGKILL')
    },
  }
}
