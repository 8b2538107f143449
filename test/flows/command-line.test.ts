import { readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { waitForOutput } from '../helpers/child.ts'
import { runServer, SERVER_ENV, startBuilt } from '../helpers/server-process.ts'
import { startBff, startSandbox } from '../helpers/system.ts'

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))

async function run(t: Test, file: string, ...args: string[]) {
  const child = startBuilt(t, file, {}, args)
  await waitForOutput(child, () => null)
  const { code } = await child.ended
  return { code, stdout: child.stdout(), stderr: child.stderr() }
}

t.test('--help and --version work on every command, without any configuration', async (t) => {
  for (const file of ['main.js', 'demo.js', 'sessions.js']) {
    const help = await run(t, file, '--help')
    t.match(help, { code: 0, stderr: '' }, file)
    t.match(help.stdout, new RegExp(`node dist/${file}`), file)
    t.match(help.stdout, /--version/, file)
    t.strictSame(await run(t, file, '--version'), { code: 0, stdout: `${version}\n`, stderr: '' }, file)
    const unknown = await run(t, file, '--verison')
    t.match(unknown, { code: 2, stdout: '', stderr: /--verison/ }, file)
  }
})

t.test('a faulty configuration prints hints at misspelled names next to its faults', async (t) => {
  const { CLIENT_SECRET: secret, ...others } = SERVER_ENV
  const ended = await runServer(t, { ...others, PUBLIC_URL: 'http://localhost:3000', CLIENT_SECERT: secret })
  t.equal(ended.code, 1)
  t.match(ended.stderr, /^ {2}CLIENT_SECRET is required/m)
  t.match(ended.stderr, /^ {2}CLIENT_SECERT is not a variable of this server: did you mean CLIENT_SECRET\?$/m)
  t.notMatch(ended.stderr, String(secret))
  t.notMatch(ended.stderr, '.env', 'something is configured')
})

t.test('a start without any required variable says that no file was read', async (t) => {
  for (const env of [{}, { PORT: '0', WAC: 'DEMO' }]) {
    const ended = await runServer(t, env)
    t.equal(ended.code, 1)
    t.match(ended.stderr, /^ {2}npm start does not read \.env: use node --env-file=\.env dist\/main\.js$/m)
  }
})

t.test('without STATIC_DIR a navigation to / gets a page, and a fetch gets 404', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const page = await bff.browser().navigate('/')
  t.equal(page.status, 200)
  t.match(page.headers['content-type'], /^text\/html/)
  t.match(page.text, /STATIC_DIR/)
  t.match(page.text, /href="\/auth\/login"/)
  t.match(page.headers['content-security-policy'], /default-src 'none'/)
  const fetched = await bff.browser().fetch('/')
  t.match(fetched.json(), { status: 404, code: 'not_found' })
  t.equal((await bff.browser().navigate('/other')).status, 404)
})
