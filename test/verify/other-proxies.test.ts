import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { isProblem } from '../helpers/browser.ts'
import { startChild, toolPath } from '../helpers/child.ts'
import { codeBlock } from '../helpers/documentation.ts'
import { type Behind, LACKS_ADDRESSES } from '../helpers/fronts.ts'
import { accepts, freePort } from '../helpers/ports.ts'
import { BROWSER, type Proxied, restartOneByOne, startProxied } from '../helpers/proxied.ts'
import { signIn } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { findTool } from '../setup/tools.mjs'

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
type Program = keyof typeof PROGRAMS

/** Starts a program with its block of the page, whose addresses and paths are replaced. */
async function startProxy(t: Test, name: Program, behind: Behind): Promise<{ httpsPort: number }> {
  const folder = makeFolder(name)
  const port = await freePort()
  const { args, more } = PROGRAMS[name]
  const text = codeBlock('docs/reverse-proxies.md', name, 'text')
    .replace(/\/etc\/\w+\/tls\/app\.example\.com/g, behind.tls)
    .replace(/10\.0\.0\.(1[12])/g, '127.0.0.$1')
    .replace(/\b3000\b(?!0)/g, String(behind.port))
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
  return { httpsPort: port }
}

t.test('behind the configurations of docs/reverse-proxies.md', { skip: LACKS_ADDRESSES }, async (t) => {
  const names = Object.keys(PROGRAMS) as Program[]
  const found = names.filter((name) => findTool(name) !== null)
  const system = await startProxied(t, [1, 2], [])
  const proxies = new Map<Program, { httpsPort: number }>()
  for (const name of found) proxies.set(name, await startProxy(t, name, system.behind))
  for (const name of names) {
    const skip = !found.includes(name) && `${name} is not installed`
    await t.test(`${name} passes on all that a page needs`, { skip }, (t) =>
      passesOnEnough(t, system, name, proxies.get(name)!),
    )
  }
  const skip = found.length === 0 && 'none of them is installed'
  await t.test('two replicas restart one by one under load', { skip }, (t) =>
    restartOneByOne(
      t,
      system,
      found.map((name) => proxies.get(name)!),
    ),
  )
})

async function passesOnEnough(
  t: Test,
  { sandbox, browserAt, logs }: Proxied,
  name: Program,
  proxy: { httpsPort: number },
): Promise<void> {
  const browser = browserAt(proxy)
  const { status, headers } = await signIn(browser, sandbox, '/here')
  t.match([status, headers.location], [303, '/here#_'], 'a sign-in')
  const { sessionId } = (await browser.fetch('/auth/session')).json() as { sessionId: string }
  const forged = { 'x-forwarded-for': '203.0.113.9' }
  const read = await browser.fetch('/flux/temperature', { headers: forged })
  t.equal(read.status, 200)
  t.match(read.json(), { wType: 'Flux' })
  const update = { method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{"name":"A"}' }
  t.equal((await browser.fetch('/site/1', update)).status, 200)
  if (name !== 'nghttpx')
    isProblem(t, await browser.fetch('/auth//session'), 404, 'not_found', 'the path arrives unchanged')
  t.equal((await browser.fetch('/auth/logout', { method: 'POST', headers: forged })).status, 204)
  const addresses = () =>
    logs()
      .filter(({ event }) => /^(login|logout)\.succeeded$/.test(String(event)))
      .filter(({ recordKey }) => recordKey === sessionId)
      .map(({ address }) => address)
  await until('logged', () => addresses().length === 2)
  t.strictSame(addresses(), [BROWSER, BROWSER], 'an address that the browser claims is not believed')
}
