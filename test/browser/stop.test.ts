import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { launchChromium, newProfile } from '../helpers/chromium.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { startServer } from '../helpers/server-process.ts'
import { platformEnv, signIn, startSandbox, untilReady } from '../helpers/system.ts'
import { startProxy } from '../helpers/tcp-proxy.ts'
import { makeFolder } from '../helpers/watchdog.ts'

const browser = await launchChromium(t)

const PAGE = '<!doctype html><script src="/app.js"></script><button>Save</button><output></output>'
const SCRIPT = `
  document.addEventListener('DOMContentLoaded', () => {
    const output = document.querySelector('output')
    const save = async () => {
      const headers = { 'content-type': 'application/json' }
      const { status } = await fetch('/site/42', { method: 'PUT', headers, body: '{"name":"A"}' })
      output.textContent = status
    }
    document.querySelector('button').addEventListener('click', () => save().catch((error) => { output.textContent = error }))
  })
`

t.test('an update that a stop cuts off is sent once by Chromium behind a TCP load balancer', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const page = makeFolder('page')
  writeFileSync(join(page, 'index.html'), PAGE)
  writeFileSync(join(page, 'app.js'), SCRIPT)

  const balancer = await startProxy(t, 0)
  const publicUrl = `http://localhost:${balancer.port}`
  const start = async () => {
    const server = await startServer(t, {
      ...platformEnv(sandbox),
      PUBLIC_URL: publicUrl,
      SESSION_STORE: 'redis',
      REDIS_URL: redis.url,
      STATIC_DIR: page,
      SHUTDOWN_SECONDS: '1',
    })
    await untilReady(server)
    return server
  }
  const [stopping, staying] = [await start(), await start()]
  balancer.turnTo(portOfUrl(stopping.url))

  const cookies = createBrowser(publicUrl)
  await signIn(cookies, sandbox)
  const context = await newProfile(t, browser)
  await context.addCookies([...cookies.cookies].map(([name, { value }]) => ({ name, value, url: publicUrl })))
  const tab = await context.newPage()
  // The update then takes a connection that was used before: only that makes a browser repeat it.
  await tab.goto(publicUrl)
  const gate = sandbox.hold('resource')
  t.teardown(() => gate.release())
  await tab.getByRole('button').click()
  await gate.arrived
  balancer.turnTo(portOfUrl(staying.url))
  t.equal(await stopping.stop('SIGTERM'), 0)
  await tab.locator('output:not(:empty)').waitFor()
  t.equal(await tab.locator('output').textContent(), '503', 'the page learns of it')
  const updates = sandbox.journal.entries({ endpoint: 'resource' }).filter(({ method }) => method === 'PUT')
  t.equal(updates.length, 1)
})
