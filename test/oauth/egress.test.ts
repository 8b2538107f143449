import net, { type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { Secret } from '../../src/secret.ts'
import { startConnectProxy } from '../helpers/connect-proxy.ts'
import { freePort, listenOnLoopback } from '../helpers/ports.ts'
import { turns, until } from '../helpers/wait.ts'
import { bounds, clientOf, http, rawTokenEndpoint } from './raw-token-endpoint.ts'

const TOKEN = new Secret('the refresh token')
const GRANT = http('200 OK', JSON.stringify({ access_token: 'at', token_type: 'bearer', expires_in: 60 }))
const CREDENTIALS = 'someone:pa55word'

/** A token endpoint, a proxy with credentials, and a client that knows only the proxy. */
async function behindProxy(t: Test, answer: (socket: Socket) => void = (socket) => socket.write(GRANT)) {
  const endpoint = await rawTokenEndpoint(t, answer)
  const proxy = await startConnectProxy(t, { credentials: CREDENTIALS })
  const address = (credentials: string) => proxy.url.replace('://', `://${credentials}@`)
  const client = (credentials = CREDENTIALS, env: Record<string, string> = {}) =>
    clientOf(t, endpoint.url, { HTTP_PROXY: address(credentials), ...env })
  return { ...endpoint, host: new URL(endpoint.url).host, proxy, client }
}

t.test('a host in NO_PROXY is reached without the proxy', async (t) => {
  const { proxy, client } = await behindProxy(t)
  const server = client(CREDENTIALS, { NO_PROXY: '127.0.0.0/8' })
  t.match(await server.refresh(TOKEN, bounds(60_000)), { kind: 'granted' })
  t.strictSame(proxy.targets, [])
})

t.test('a proxy that refuses leaves no doubt, and the reason names it without its credentials', async (t) => {
  const { proxy, client, host, requests } = await behindProxy(t)
  const name = `the egress proxy 127.0.0.1:${proxy.port}`
  const refused = `${name} refused CONNECT ${host} with status`
  const refresh = async (credentials: string) => await client(credentials).refresh(TOKEN, bounds(60_000))
  const unavailable = { kind: 'unavailable', timedOut: false } as const
  t.match(await refresh('someone:wr0ng'), {
    ...unavailable,
    reason: `the request was not sent (${refused} 407: check the user and the password in HTTP_PROXY)`,
  })
  for (const [status, remedy] of [
    [401, 'check the user and the password in HTTP_PROXY'],
    [
      403,
      'check that it permits CONNECT to this host and port (squid permits port 443 alone by default: SSL_ports), or name the host in NO_PROXY',
    ],
    [502, 'check that it reaches this host, or name the host in NO_PROXY'],
    [503, 'check that it reaches this host, or name the host in NO_PROXY'],
  ] as const) {
    proxy.respondWith(status)
    const reason = `the request was not sent (${refused} ${status}: ${remedy})`
    t.match(await refresh(CREDENTIALS), { ...unavailable, reason })
  }
  const nobody = await freePort()
  const down = client(CREDENTIALS, { HTTP_PROXY: `http://${CREDENTIALS}@127.0.0.1:${nobody}` })
  t.match(await down.refresh(TOKEN, bounds(60_000)), {
    ...unavailable,
    reason: `the request was not sent (the egress proxy 127.0.0.1:${nobody} cannot be reached, ECONNREFUSED: check HTTP_PROXY)`,
  })
  t.equal(requests.length, 0)
})

t.test('a proxy that answers with no HTTP, or closes the connection, leaves no doubt', async (t) => {
  const { url, client } = await behindProxy(t)
  for (const answer of ['', 'SSH-2.0-OpenSSH_9.2\r\n\r\n']) {
    const server = net.createServer((socket) => void socket.on('error', () => {}).end(answer))
    const HTTP_PROXY = `http://127.0.0.1:${await listenOnLoopback(t, server)}`
    const outcome = await client(CREDENTIALS, { HTTP_PROXY }).refresh(TOKEN, bounds(60_000))
    t.match(
      outcome,
      { kind: 'unavailable', reason: /egress proxy 127.*cannot be reached, (ECONNRESET|HPE_)/ },
      url,
    )
  }
})

t.test('a request that waits for the proxy too long is never sent', async (t) => {
  const { proxy, client, requests } = await behindProxy(t)
  proxy.respondWith(0)
  // Where the machine was held up, its time may be over before it reaches the proxy.
  await until('one has waited for the proxy', async () => {
    const outcome = await client().refresh(TOKEN, bounds(200, 60_000))
    t.match(outcome, { kind: 'unavailable', timedOut: true, reason: 'the request was not sent' })
    return proxy.targets.length > 0
  })
  proxy.admit()
  await until('it arrived', () => proxy.open() > 0)
  await turns()
  t.equal(requests.length, 0, 'not even when the proxy opens the connection at last')
})

t.test('a tunnel that breaks leaves a doubt, and an abandoned request resets its tunnel', async (t) => {
  for (const isAbandoned of [true, false]) {
    const { proxy, client, requests } = await behindProxy(t, () => {})
    const connection = new AbortController()
    const answer = client().refresh(TOKEN, { ...bounds(60_000), signal: connection.signal })
    await until('it arrived', () => requests.length === 1)
    if (isAbandoned) connection.abort(new Error('the record moved on'))
    else proxy.cut()
    t.match(await answer, { kind: 'in_doubt' })
    await until('its connection has ended', () => proxy.open() === 0)
    if (isAbandoned) t.strictSame(proxy.clientEnds, ['ECONNRESET'], 'a reset and no orderly close')
    t.equal(requests.length, 1)
  }
})
