import { writeFileSync } from 'node:fs'
import net from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { portOfUrl } from '../helpers/ports.ts'
import { startServer } from '../helpers/server-process.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { readAnswers } from './wire.ts'

/** A machine whose `localhost` has two addresses, as most have; here both are IPv4. */
const TWO_ADDRESSES = `
import dns from 'node:dns'
const { lookup } = dns
const both = [{ address: '127.0.0.1', family: 4 }, { address: '127.0.0.2', family: 4 }]
dns.lookup = (name, options, done) =>
  name === 'localhost' && options.all ? process.nextTick(done, null, both) : lookup(name, options, done)
`

const RUBBISH = 'rubbish\r\n\r\n'
const PROBLEM = /^HTTP\/1\.1 400 .*\r\ncontent-type: application\/problem\+json\r\n/s

/** What comes back for something that is no request; null where nothing listens. */
function rubbishTo(address: string, port: number): Promise<string | null> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    const socket = net.connect(port, address, () => socket.write(RUBBISH))
    socket.setTimeout(5_000, () => socket.destroy())
    socket.on('data', (chunk) => chunks.push(chunk))
    socket.on('close', () => {
      readAnswers(port, RUBBISH, Buffer.concat(chunks))
      resolve(Buffer.concat(chunks).toString())
    })
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNREFUSED') resolve(null)
      else reject(error)
    })
  })
}

t.test('with HOST=localhost every address has the hooks', async (t) => {
  const file = join(makeFolder('localhost'), 'two-addresses.mjs')
  writeFileSync(file, TWO_ADDRESSES)
  const server = await startServer(t, {
    HOST: 'localhost',
    NODE_OPTIONS: `--import=${pathToFileURL(file).href}`,
  })
  const port = portOfUrl(server.publicUrl)
  const [first, second] = [await rubbishTo('127.0.0.1', port), await rubbishTo('127.0.0.2', port)]
  t.match(first, PROBLEM)
  if (second !== null) t.match(second, PROBLEM)
  t.equal(await server.stop(), 0)
})
