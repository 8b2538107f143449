import { execFile, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import t from 'tap'
import { faultsSchema } from '../../sandbox/control-schemas.ts'
import { noFaults } from '../../sandbox/faults.ts'
import { PROFILES, READINGS } from '../../sandbox/profiles.ts'
import { createSandbox, type Sandbox } from '../../sandbox/sandbox.ts'
import { codeBlock } from '../helpers/documentation.ts'
import { startBff, startSandbox as startPlatform } from '../helpers/system.ts'
import { refresh, startSandbox } from './started.ts'

const printed = (heading: string, language: string) => codeBlock('docs/sandbox.md', heading, language)

/** Sends what a printed curl command sends, to this sandbox. */
async function curl(sandbox: Sandbox, command: string): Promise<Response> {
  const type = /-H 'content-type: ([^']+)'/.exec(command)?.[1] ?? 'application/x-www-form-urlencoded'
  const data = [...command.matchAll(/-d (?:'([^']*)'|(\S+))/g)].map(([, quoted, plain]) => quoted ?? plain)
  const path = /http:\/\/127\.0\.0\.1:4000(\/[^\s']*)/.exec(command)?.[1]
  const headers = { 'content-type': type }
  return await fetch(`${sandbox.authUrl}${path}`, {
    method: 'POST',
    headers,
    body: data.join('&'),
    redirect: 'manual',
  })
}

/** Runs printed code with these names. */
async function run(code: string, names: Record<string, unknown>): Promise<void> {
  const AsyncFunction = (async () => {}).constructor as new (
    ...texts: string[]
  ) => (...values: unknown[]) => Promise<void>
  await new AsyncFunction(...Object.keys(names), code)(...Object.values(names))
}

const lacksCurl = spawnSync('curl', ['--version']).error !== undefined && 'curl is not installed'

t.test('the printed commands sign in without a browser', { skip: lacksCurl }, async (t) => {
  const { publicUrl } = await startBff(t, await startPlatform(t))
  const env = { PATH: process.env.PATH, PUBLIC_URL: publicUrl }
  const cwd = t.testdir({})
  const code = printed('Sign in without a browser', 'sh')
  const { stdout } = await promisify(execFile)('sh', ['-ec', code], { cwd, env })
  t.match(stdout, /"fluxID":"temperature"/)
})

t.test('the printed command makes one token request fail', async (t) => {
  const sandbox = await startSandbox(t)
  t.equal((await curl(sandbox, printed('Make it fail', 'sh'))).status, 200)
  const { refresh_token } = sandbox.issueTokens('alice')
  t.equal((await refresh(sandbox, refresh_token)).status, 503)
  t.equal((await refresh(sandbox, refresh_token)).status, 200)
})

t.test('the printed code starts a sandbox and holds a refresh until the logout is done', async (t) => {
  const sandbox = await startSandbox(t)
  const { refresh_token } = sandbox.issueTokens('alice')
  const order: string[] = []
  let refreshed: Promise<unknown> = Promise.resolve()
  await run(printed('Gates', 'ts'), {
    sandbox,
    refresh: () => {
      refreshed = refresh(sandbox, refresh_token).then(() => order.push('refresh'))
      return refreshed
    },
    logout: async () => order.push('logout'),
  })
  await refreshed
  t.strictSame(order, ['logout', 'refresh'])

  await t.test('in process', async (t) => {
    const code = printed('In process', 'ts')
    const [line = '', path = ''] = /^import \{ createSandbox \} from '(.*)'\n/.exec(code) ?? []
    t.equal(new URL(path, import.meta.url).href, new URL('../../sandbox/sandbox.ts', import.meta.url).href)
    await run(code.replace(line, ''), { createSandbox, t })
  })
})

t.test('the page names every profile and every reading, and no other', async (t) => {
  const page = readFileSync(new URL('../../docs/sandbox.md', import.meta.url), 'utf8')
  const section = page.slice(page.indexOf('\n### Profiles'))
  const listed = /^The names are ([^.]+)\. /m.exec(section)?.[1] ?? ''
  t.strictSame(
    [...listed.matchAll(/`([^`]+)`/g)].map((match) => match[1]).sort(),
    Object.keys(PROFILES).sort(),
  )
  const readings = section.slice(section.indexOf('\n| Name | Switches |')).split('\n\n')[0]!
  t.strictSame(
    [...readings.matchAll(/^\| `([\w-]+)` \|/gm)].map((match) => match[1]),
    Object.keys(READINGS),
  )
})

t.test('every switch can be set over HTTP and is in the documentation, and no other', async (t) => {
  const switches = Object.keys(noFaults(3600)).sort()
  t.strictSame(Object.keys(faultsSchema.properties).sort(), switches)
  const page = readFileSync(new URL('../../docs/sandbox.md', import.meta.url), 'utf8')
  const section = page.slice(page.indexOf('\n## Switches'), page.indexOf('\n### Modes'))
  t.strictSame([...section.matchAll(/^\| `(\w+)` \|/gm)].map((match) => match[1]).sort(), switches)
})
