import { appendFileSync, cpSync, existsSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { request } from 'undici'
import { startChild } from '../helpers/child.ts'
import { freePort } from '../helpers/ports.ts'
import { until } from '../helpers/wait.ts'
import { ROOT } from '../repository/files.ts'

/** The response, with its body read: an unread one can break the connection when the server ends. */
async function read(url: string, options: RequestInit = {}): Promise<Response> {
  const response = await fetch(url, options)
  await response.text()
  return response
}

/** A build ends only when the file `hold` is gone. */
const HELD = `
while (existsSync(join(root, 'hold'))) {
  writeFileSync(join(root, 'held'), '')
  await new Promise((resolve) => setTimeout(resolve, 20))
}
`

t.test('npm run dev runs the files as they are, on loopback alone, until it is stopped', async (t) => {
  const copy = t.testdir({ '.env': 'STATIC_CSP=img-src https://one.example\n' })
  const files = ['package.json', 'package-lock.json', 'LICENSE', 'tsconfig.json']
  for (const name of ['src', 'operator', 'sandbox', 'demo', 'client', 'scripts', ...files])
    cpSync(join(ROOT, name), join(copy, name), { recursive: true })
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'))
  appendFileSync(join(copy, 'scripts/build.mjs'), HELD)
  const port = await freePort()
  const debuggerPort = await freePort()
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
  const [, command, ...args] = scripts.dev.split(' ')
  const dev = startChild(t, command, [...args, '--inspect'], {
    cwd: copy,
    env: {
      PATH: process.env.PATH ?? '',
      NODE_OPTIONS: `--inspect-port=${debuggerPort}`,
      HOST: '0.0.0.0',
      PORT: String(port),
    },
  })
  t.teardown(() => dev.stop('SIGTERM'))
  const url = `http://localhost:${port}`
  const printed = async (text: string) =>
    await until(`it prints ${text}`, () => {
      if (dev.hasEnded()) throw new Error(dev.output())
      return dev.output().includes(text)
    })
  const page = async () => await read(`${url}/`, { headers: { accept: 'text/html' } })
  /** The process that a debugger would attach to; null if there is none. */
  const debugged = async () => {
    const targets = await fetch(`http://127.0.0.1:${debuggerPort}/json`).catch(() => null)
    return targets === null ? null : ((await targets.json()) as { id: string; title: string }[])[0]!
  }
  /** The title of a problem; '' while one server gives way to the next. */
  const nothing = async () => {
    const response = await fetch(`${url}/auth/nothing`).catch(() => null)
    return response === null ? '' : ((await response.json()) as { title: string }).title
  }

  await printed('runs your files')
  const csp = (await page()).headers.get('content-security-policy')
  t.match(csp, 'https://one.example', 'the variables of .env are those of the server')
  await t.rejects(fetch(`http://127.0.0.2:${port}/`), 'no other address, whatever HOST says')
  const login = await request(`${url}/auth/login`, { headers: { 'sec-fetch-mode': 'navigate' } })
  await login.body.dump()
  const signInPage = String(login.headers.location)
  t.equal((await read(signInPage)).status, 200, 'the sandbox knows the client and the callback')
  await until('requests are in the log', () => /GET.*\/auth\/login/.test(dev.output()))
  t.notMatch(dev.output(), /^\{/m, 'and its lines are for people')

  await until('a debugger reaches the server', async () => (await debugged()) !== null)
  const first = await debugged()
  t.match(first?.title, /dist\..\/main\.js$/)

  const file = join(copy, 'src/errors.ts')
  const source = readFileSync(file, 'utf8')
  const before = await nothing()
  t.ok(source.includes(before))
  writeFileSync(file, source.replace(before, 'Changed while it runs'))
  await until('the change is live', async () => (await nothing()) === 'Changed while it runs')
  await until('a debugger reaches it', async () => ![undefined, first?.id].includes((await debugged())?.id))

  writeFileSync(join(copy, 'hold'), '')
  writeFileSync(file, source.replace(before, 'Saved first'))
  await until('a build has read the files', () => existsSync(join(copy, 'held')))
  writeFileSync(file, source.replace(before, 'Saved during the build'))
  rmSync(join(copy, 'hold'))
  await until('both changes are live', async () => (await nothing()) === 'Saved during the build')

  writeFileSync(file, `${source}\nconst = 1\n`)
  await printed('The server from before the change goes on.')
  t.match(dev.output(), /src\/errors\.ts:\d+/, 'the fault is shown with its place')
  t.equal(await nothing(), 'Saved during the build')
  writeFileSync(file, source)
  await until('the next good file is live', async () => (await nothing()) === before)

  writeFileSync(join(copy, '.env'), 'STATIC_CSP=img-src https://two.example\n')
  await until('the new .env is read', async () => {
    const shown = await page().catch(() => null)
    return String(shown?.headers.get('content-security-policy')).includes('https://two.example')
  })

  dev.send('SIGINT')
  t.equal((await dev.ended).code, 0)
  await t.rejects(fetch(signInPage), 'the sandbox has ended as well')
  await t.rejects(page())
  for (const folder of ['dist.a', 'dist.b']) t.notOk(existsSync(join(copy, folder)))
})
