import t from 'tap'
import { parse } from 'yaml'
import { createBrowser } from '../helpers/browser.ts'
import { waitForOutput } from '../helpers/child.ts'
import { freePort } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { startBuilt } from '../helpers/server-process.ts'
import { signIn } from '../helpers/system.ts'
import { ROOT, read } from '../repository/files.ts'

interface Service {
  command?: string[]
  ports?: string[]
  environment: Record<string, string>
}

t.test('the programs of docker-compose.yml sign in, read, and show what the platform received', async (t) => {
  const [PORT, SANDBOX_PORT, serverPort] = [await freePort(), await freePort(), await freePort()].map(String)
  const redis = await startRedis(t)
  const own: Record<string, string | undefined> = { PORT, SANDBOX_PORT }
  // The names of the services become addresses of this machine, the ports in containers those of this test.
  const text = read('docker-compose.yml')
    .replace(/\$\{(\w+):-([^}]*)\}/g, (_all, name: string, fallback: string) => own[name] ?? fallback)
    .replaceAll('redis://redis:6379', redis.url)
    .replaceAll('http://server:3000', `http://127.0.0.1:${serverPort}`)
    .replaceAll('http://sandbox:4000', `http://127.0.0.1:${SANDBOX_PORT}`)
    .replaceAll('HOST: 0.0.0.0', 'HOST: 127.0.0.1')
    .replaceAll('/app/', ROOT)
  const { services } = parse(text, { merge: true }) as { services: Record<string, Service> }
  t.strictSame(services.front?.ports, [`127.0.0.1:${PORT}:3000`])

  const start = async (name: string, env: Record<string, string | undefined>, listening: RegExp) => {
    const { command = ['node', 'dist/main.js'], environment } = services[name]!
    const file = command[1]!.replace('dist/', '')
    const child = startBuilt(t, file, { ...environment, ...(env as Record<string, string>) })
    const found = await waitForOutput(child, (output) => listening.exec(output))
    t.ok(found, `${name} listens: ${child.output()}`)
    return child
  }
  await start('sandbox', { PORT: SANDBOX_PORT }, /Sandbox platform on/)
  // The front is in no network of Docker here.
  const here = { HOST: '127.0.0.1', PORT: serverPort, TRUST_PROXY: '127.0.0.1' }
  await start('server', { ...here, OPS_PORT: String(await freePort()) }, /"msg":"listening"/)
  const front = await start('front', { PORT }, /on http:\/\/localhost:\d+/)

  const publicUrl = `http://localhost:${PORT}`
  const browser = createBrowser(publicUrl)
  const page = await browser.navigate('/')
  t.match(page.text, /Token handler demo/)
  await signIn(browser, { url: 'the sandbox of the compose file' })
  const { sessionId } = (await browser.fetch('/auth/session')).json() as { sessionId: string }
  const headers = { traceparent: `00-${sessionId.padStart(32, '0')}-0000000000000001-00` }
  t.equal((await browser.fetch('/flux/temperature', { headers })).status, 200)
  t.equal((await browser.fetch('/flux/OTHER/temperature')).json().code, 'wac_not_allowed')
  const stage = (await browser.fetch(`/_sandbox/stage.json?session=${sessionId}`)).json()
  t.match(stage, { connected: true, issued: 1, entries: [{ endpoint: 'token' }, { presented: 1 }] })
  t.equal((await browser.fetch('/_sandbox/scenario/expired', { method: 'POST' })).status, 204)
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
  t.match((await browser.fetch(`/_sandbox/stage.json?session=${sessionId}`)).json(), { issued: 2 })
  t.equal((await browser.fetch('/_sandbox/journal')).status, 404, 'what holds tokens is not passed on')
  t.equal((await front.stop('SIGTERM')).code, 0)
})
