import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createBrowser, isProblem } from '../helpers/browser.ts'
import { startChild, toolPath } from '../helpers/child.ts'
import { codeBlock } from '../helpers/documentation.ts'
import { accepts, freePort } from '../helpers/ports.ts'
import { startServer } from '../helpers/server-process.ts'
import { CLIENT, platformEnv, signIn, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { findTool } from '../setup/tools.mjs'
import { createTlsFiles } from './front.ts'

const NAME = 'app.example.com'
const ORIGIN = `https://${NAME}`
const BROWSER = '127.0.0.7'

const PROGRAMS = {
  lighttpd: {
    args: (file: string) => ['-D', '-f', file],
    more: (folder: string) => `server.errorlog = "${folder}/error.log"\nserver.bind = "127.0.0.1"\n`,
  },
  h2o: {
    args: (file: string) => ['-m', 'worker', '-c', file],
    more: () => (process.getuid?.() === 0 ? 'user: root\n' : ''),
  },
  nghttpx: { args: (file: string) => [`--conf=${file}`, '-n1'], more: () => '' },
} as const

/** Starts a program with its block of the page, whose addresses and paths are replaced. Returns its port. */
async function startProxy(
  t: Test,
  name: keyof typeof PROGRAMS,
  replica: number,
  tls: string,
): Promise<number> {
  const folder = makeFolder(name)
  const port = await freePort()
  const { args, more } = PROGRAMS[name]
  const text = codeBlock('docs/reverse-proxies.md', name, 'text')
    .replace(/\/etc\/\w+\/tls\/app\.example\.com/g, tls)
    .replace(/10\.0\.0\.1[12]/g, '127.0.0.1')
    .replace(/\b3000\b(?!0)/g, String(replica))
    .replace(/(server\.port = |port: |frontend=\*,)443/, (_whole, before: string) =>
      before === 'frontend=*,' ? `frontend=127.0.0.1,${port}` : `${before}${port}`,
    )
  const file = join(folder, 'configuration')
  writeFileSync(file, more(folder) + text)
  const child = startChild(t, toolPath(name), args(file), { cwd: folder })
  await until(`${name} listens`, async () => {
    if (child.hasEnded()) throw new Error(`${name} ended at its start:\n${child.output()}`)
    return await accepts(port)
  })
  return port
}

for (const name of Object.keys(PROGRAMS) as (keyof typeof PROGRAMS)[]) {
  const skip = findTool(name) === null && `${name} is not installed`
  t.test(
    `the configuration of docs/reverse-proxies.md for ${name} passes on all that a page needs`,
    {
      skip,
    },
    async (t) => {
      const { tls, ca } = await createTlsFiles(NAME)
      const sandbox = await startSandbox(t, { client: { ...CLIENT, callback: `${ORIGIN}/auth/callback` } })
      const server = await startServer(t, {
        PUBLIC_URL: ORIGIN,
        TRUST_PROXY: '127.0.0.1',
        SESSION_STORE: 'memory',
        ...platformEnv(sandbox),
      })
      await untilReady(server)
      const port = await startProxy(t, name, Number(new URL(server.url).port), tls)
      const browser = createBrowser(ORIGIN, { port, ca, localAddress: BROWSER })
      const { status, headers } = await signIn(browser, sandbox, '/here')
      t.match([status, headers.location], [303, '/here#_'], 'a sign-in')
      const forged = { 'x-forwarded-for': '203.0.113.9' }
      const read = await browser.fetch('/flux/temperature', { headers: forged })
      t.equal(read.status, 200)
      t.match(read.json(), { wType: 'Flux' })
      const update = { method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{"name":"A"}' }
      t.equal((await browser.fetch('/site/1', update)).status, 200)
      if (name !== 'nghttpx')
        isProblem(t, await browser.fetch('/auth//session'), 404, 'not_found', 'the path arrives unchanged')
      t.equal((await browser.fetch('/auth/logout', { method: 'POST', headers: forged })).status, 204)
      const lines = () =>
        server.logs().filter(({ event }) => /^(login|logout)\.succeeded$/.test(String(event)))
      await until('logged', () => lines().length === 2)
      t.strictSame(
        lines().map(({ address }) => address),
        [BROWSER, BROWSER],
        'an address that the browser claims is not believed',
      )
    },
  )
}
