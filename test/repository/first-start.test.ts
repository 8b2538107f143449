import { spawnSync } from 'node:child_process'
import { symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { type Child, startChild, waitForOutput } from '../helpers/child.ts'
import { codeBlock, codeBlocks } from '../helpers/documentation.ts'
import { freePort } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { signIn } from '../helpers/system.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { ROOT, read } from './files.ts'

const PAGE = 'docs/configuration.md'
const { PATH = '' } = process.env

const folder = makeFolder('first-start')
symlinkSync(join(ROOT, 'dist'), join(folder, 'dist'))

/** Runs printed commands. The last one takes the place of the shell, so that signals reach it. */
function sh(code: string, env: Record<string, string> = {}): Child {
  const lines = code.trim().split('\n')
  const script = ['set -e', ...lines.slice(0, -1), `exec env ${lines.at(-1)}`].join('\n')
  return startChild(t, 'sh', ['-c', script], { cwd: folder, env: { PATH, ...env } })
}

/** The one line of the shell blocks below this heading of docs/deployment.md that matches, without its comment. */
function line(heading: string, pattern: RegExp): string {
  const lines = codeBlock('docs/deployment.md', heading, 'sh').split('\n')
  const [found = '', ...more] = lines
    .map((text) => text.replace(/ +#.*$/, ''))
    .filter((text) => pattern.test(text))
  if (found === '' || more.length > 0) throw new Error(`not one line matches ${pattern}`)
  return found
}

const redis = await startRedis(t)

t.test('the printed commands start a server with .env.example, over Redis and the sandbox', async (t) => {
  const sandboxPort = await freePort()
  const printedSandbox = codeBlock('docs/sandbox.md', 'Start it', 'sh')
  t.ok(read(PAGE).includes(`\`${printedSandbox.trim()}\``), 'both pages start it alike')
  const sandbox = sh(printedSandbox.replace('4000', String(sandboxPort)))
  const sandboxUrl = await waitForOutput(
    sandbox,
    (text) => /^Sandbox platform on (\S+)$/m.exec(text)?.[1] ?? null,
  )
  t.equal(sandboxUrl, `http://127.0.0.1:${sandboxPort}`)

  // The values of the file, on ports of this test.
  const ports = { 3000: await freePort(), 4000: sandboxPort, 6379: redis.port }
  let example = read('.env.example')
  for (const [printed, own] of Object.entries(ports)) {
    t.match(example, `://localhost:${printed}\n`)
    example = example.replaceAll(`://localhost:${printed}\n`, `://localhost:${own}\n`)
  }
  writeFileSync(join(folder, '.env.example'), example)

  const start = codeBlocks(PAGE).find(
    ({ heading, language }) => heading === 'Configuration' && language === 'sh',
  )
  const own = { HOST: '127.0.0.1', PORT: String(ports[3000]), OPS_PORT: String(await freePort()) }
  const server = sh(start?.code ?? '', own)
  t.ok(await waitForOutput(server, (text) => /"event":"listening"/.exec(text)), server.output())
  t.equal(
    codeBlock('README.md', 'Configuration', 'sh').match(/^node \S+ \S+/m)?.[0],
    start?.code.trim().split('\n').at(-1),
    'as in the README',
  )

  const browser = createBrowser(`http://localhost:${ports[3000]}`)
  const back = await signIn(browser, { url: String(sandboxUrl) })
  t.equal(back.status, 303, back.text)
  t.match((await browser.fetch('/auth/session')).json(), { authenticated: true })

  const rule = codeBlock(PAGE, 'Connect to Redis', 'sh')
  const set = spawnSync('sh', ['-c', rule.replace(/^redis-cli/, `redis-cli -h 127.0.0.1 -p ${redis.port}`)])
  t.equal(String(set.stdout), 'OK\n', String(set.stderr))
  const doctor = sh(line('Check a deployment', /^node --env-file=.env /), {
    ...own,
    REDIS_URL: `redis://bff:password@localhost:${redis.port}`,
  })
  t.equal((await doctor.ended).code, 0, doctor.output())
  t.match(doctor.stdout(), /^ok +rights /m, 'the printed ACL rule suffices')
  t.match(doctor.stdout(), /^ok +client /m)

  const count = sh(line('End sessions from the command line', /^node --env-file=.env /), own)
  t.equal((await count.ended).code, 0, count.output())
  t.equal(count.stdout(), '1\n')

  t.equal((await server.stop('SIGTERM')).code, 0)
  t.equal((await sandbox.stop('SIGTERM')).code, 0)
})
