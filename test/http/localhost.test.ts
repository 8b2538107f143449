import { once } from 'node:events'
import net from 'node:net'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { portOfUrl } from '../helpers/ports.ts'
import { startServer } from '../helpers/server-process.ts'
import { speak } from './wire.ts'

/** A machine whose `localhost` has two addresses, as most have; here both are IPv4. */
const TWO_ADDRESSES = `
import dns from 'node:dns'
const { lookup } = dns
const both = [{ address: '127.0.0.1', family: 4 }, { address: '127.0.0.2', family: 4 }]
dns.lookup = (name, options, done) =>
  name === 'localhost' && options.all ? process.nextTick(done, null, both) : lookup(name, options, done)
`

t.test('with HOST=localhost the server has one address, and its hooks', async (t) => {
  const folder = t.testdir({ 'two-addresses.mjs': TWO_ADDRESSES })
  const server = await startServer(t, {
    HOST: 'localhost',
    NODE_OPTIONS: `--import=${pathToFileURL(folder).href}/two-addresses.mjs`,
  })
  const port = portOfUrl(server.publicUrl)
  t.match((await speak(port, 'rubbish\r\n\r\n')).answers, [{ status: 400 }])
  const second = net.connect(port, '127.0.0.2')
  const [error] = await once(second, 'error')
  t.match(error, { code: 'ECONNREFUSED' })
  t.equal(await server.stop(), 0)
})
