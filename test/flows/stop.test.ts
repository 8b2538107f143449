import { once } from 'node:events'
import net from 'node:net'
import t from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { startServer } from '../helpers/processes.ts'
import { CLIENT, signIn, startSandbox } from '../helpers/system.ts'

t.test('a stop is not held up by a connection on which nothing was sent', async (t) => {
  const server = await startServer(t, { SHUTDOWN_SECONDS: '10' })
  const silent = net.connect(Number(new URL(server.url).port), '127.0.0.1')
  t.teardown(() => silent.destroy())
  silent.on('error', () => {})
  await once(silent, 'connect')
  const begin = performance.now()
  t.equal(await server.stop('SIGTERM'), 0)
  t.ok(performance.now() - begin < 5_000, 'well before SHUTDOWN_SECONDS')
})

t.test('an open request is answered, and its kept connection does not hold the stop up', async (t) => {
  const sandbox = await startSandbox(t)
  const server = await startServer(t, {
    SHUTDOWN_SECONDS: '10',
    AUTH_URL: sandbox.authUrl,
    BASE_URL: sandbox.baseUrl,
    CLIENT_ID: CLIENT.clientId,
    CLIENT_SECRET: CLIENT.clientSecret,
    WAC: 'DEMO',
  })
  const browser = createBrowser(server.publicUrl)
  await signIn(browser, sandbox)
  const gate = sandbox.hold('resource')
  const socket = net.connect(Number(new URL(server.url).port), '127.0.0.1')
  t.teardown(() => socket.destroy())
  const cookie = [...browser.cookies].map(([name, { value }]) => `${name}=${value}`).join('; ')
  socket.write(
    `GET /flux/temperature HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\nCookie: ${cookie}\r\n\r\n`,
  )
  let answer = ''
  socket.on('data', (chunk: Buffer) => {
    answer += chunk.toString()
  })
  await gate.arrived
  const begin = performance.now()
  server.send('SIGTERM')
  while (!server.logs().some((line) => line.event === 'stopping')) {
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  gate.release()
  t.equal((await server.ended).code, 0)
  t.ok(performance.now() - begin < 5_000, 'well before SHUTDOWN_SECONDS')
  t.match(answer, /^HTTP\/1\.1 200 /)
  t.match(answer, /"wType":"Flux"/)
})
