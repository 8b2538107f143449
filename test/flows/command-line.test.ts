import { readFileSync } from 'node:fs'
import t from 'tap'
import { startChild } from '../helpers/child.ts'
import { runBuilt, runServer, SERVER_ENV } from '../helpers/server-process.ts'
import { ROOT } from '../repository/files.ts'

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))

t.test('--help and --version work on every command, without any configuration', async (t) => {
  for (const file of ['main.js', 'demo.js', 'sessions.js', 'sandbox/main.js']) {
    const help = await runBuilt(t, file, {}, ['--help'])
    t.match(help, { code: 0, stderr: '' }, file)
    t.match(help.stdout, new RegExp(`node dist/${file}`), file)
    t.match(help.stdout, /--version/, file)
    t.strictSame(
      await runBuilt(t, file, {}, ['--version']),
      { code: 0, stdout: `${version}\n`, stderr: '' },
      file,
    )
    const unknown = await runBuilt(t, file, {}, ['--verison'])
    t.match(unknown, { code: 2, stdout: '', stderr: /--verison/ }, file)
  }
  for (const [argument, code] of [
    ['--help', 0],
    ['--version', 0],
    ['--verison', 2],
  ] as const) {
    const args = ['--import', 'tsx', 'demo/dev.ts', argument]
    t.equal((await startChild(t, process.execPath, args, { cwd: ROOT }).ended).code, code, argument)
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
    t.match(ended.stderr, /^ {2}npm does not read \.env: use node --env-file=\.env dist\/main\.js/m)
  }
})
