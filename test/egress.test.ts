import dns from 'node:dns'
import net, { type Socket } from 'node:net'
import t from 'tap'
import { connectorTo } from '../src/egress.ts'
import { listenOnLoopback } from './helpers/ports.ts'
import { clientOf } from './oauth/raw-token-endpoint.ts'

const STRAIGHT = { https: null, http: null, exempt: [] }

t.test(
  'connections to one name share the look-up under way, and none to another name waits for it',
  async (t) => {
    const { lookup } = dns
    const asked: string[] = []
    const fake = (host: string, ...rest: [dns.LookupOptions, () => void]): void => {
      asked.push(host)
      if (host !== 'silent.test') lookup('127.0.0.1', ...rest)
    }
    const server = net.createServer((socket) => void socket.on('error', () => {}))
    const port = String(await listenOnLoopback(t, server))
    Object.assign(dns, { lookup: fake })
    t.teardown(() => Object.assign(dns, { lookup }))
    const connect = (hostname: string): Promise<Socket | null> =>
      new Promise((resolve) =>
        connectorTo(
          `http://${hostname}`,
          STRAIGHT,
          60_000,
        )({ hostname, host: hostname, protocol: 'http:', port }, (_, socket) => resolve(socket)),
      )
    for (let count = 0; count < 128; count += 1) void connect('silent.test')
    const proxy = { HTTPS_PROXY: 'http://silent.test', HTTP_PROXY: 'http://silent.test' }
    for (const url of ['https://silent.test', 'http://silent.test'])
      for (const env of [{}, proxy])
        void clientOf(t, url, {
          ALLOW_INSECURE_HTTP: 'true',
          TOKEN_TIMEOUT_MS: '1000',
          ...env,
        }).redeemClient()
    const others = await Promise.all([connect('other.test'), connect('other.test')])
    t.strictSame(asked, ['silent.test', 'other.test'])
    others.push(await connect('other.test'))
    t.strictSame(asked.slice(2), ['other.test'], 'nothing is kept')
    for (const socket of others) {
      t.ok(socket)
      socket?.destroy()
    }
  },
)
