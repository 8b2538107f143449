import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import t from 'tap'
import { parseArguments } from '../../operator/cli.ts'
import { parseDoctorArguments } from '../../operator/examine.ts'
import { faultsOf } from '../config/environment.ts'
import { codeBlock, codeBlocks } from '../helpers/documentation.ts'
import { commandsOf, filesBelow, PAGES, ROOT, read } from './files.ts'

const commands = PAGES.flatMap((page) => commandsOf(page).map(({ command }) => ({ page, command })))

/** What follows a program in the commands that begin with it, perhaps after `docker compose exec`. */
function argumentsOf(program: RegExp): { page: string; args: string[] }[] {
  return commands.flatMap(({ page, command }) => {
    const found = program.exec(command)
    if (found === null) return []
    const rest = command.slice(found.index + found[0].length).trim()
    return [{ page, args: rest === '' ? [] : rest.split(/ +/) }]
  })
}

t.test('each code block has a language, and each shell block is well-formed', async (t) => {
  for (const page of PAGES) {
    for (const { heading, language, code } of codeBlocks(page)) {
      t.match(language, /^(sh|text|ts|tsx|js|html|json|yaml|mermaid)$/, `${page}: ${heading}`)
      if (language !== 'sh') continue
      const { stderr } = spawnSync('sh', ['-n'], { input: code, encoding: 'utf8' })
      t.equal(stderr, '', `${page}: ${heading}`)
    }
  }
})

t.test('each program of the build that a command starts exists', async (t) => {
  const programs = commands.flatMap(({ command }) =>
    [...command.matchAll(/\bdist\/([\w/-]+)\.js\b/g)].map(([, name]) => name!),
  )
  t.ok(programs.length > 5)
  for (const name of programs)
    t.ok(
      [`src/${name}`, `operator/${name}`, name].some((path) => existsSync(`${ROOT}/${path}.ts`)),
      name,
    )
  const files = commands.flatMap(({ command }) => [
    ...command.matchAll(/(?<!kubectl exec )\b(?:test|deploy)\/[\w/.@-]+/g),
  ])
  t.ok(files.length > 0)
  for (const [path] of files) t.ok(existsSync(`${ROOT}/${path}`), path)
})

t.test('the commands of the operator accept the arguments that the pages give', async (t) => {
  const sessions = argumentsOf(/npm run sessions -- |dist\/sessions\.js/)
  t.ok(sessions.length > 5)
  for (const { args } of sessions) t.not(parseArguments(args).kind, 'wrong', args.join(' '))
  const doctor = argumentsOf(/npm run doctor(?: --(?= ))?|dist\/doctor\.js/)
  t.ok(doctor.length > 2)
  for (const { args } of doctor) t.not(parseDoctorArguments(args).kind, 'wrong', args.join(' '))
})

t.test('each option of a script for contributors is one that the script reads', async (t) => {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
  let options = 0
  for (const { page, command } of commands) {
    const [, name = '', rest = ''] = /\bnpm run ([\w:]+) -- (.*)$/.exec(command) ?? []
    if (name === '' || name === 'sessions' || name === 'doctor') continue
    const folder = /([\w/]+)\/[\w-]+\.(?:ts|mjs)/.exec(scripts[name] ?? '')?.[1] ?? ''
    const sources = readdirSync(`${ROOT}/${folder}`)
      .filter((file) => /\.(ts|mjs)$/.test(file))
      .map((file) => read(`${folder}/${file}`))
      .join('\n')
    for (const [, option = ''] of rest.matchAll(/--([a-z-]+)/g)) {
      options += 1
      t.match(sources, new RegExp(`\\b${option}\\b`), `${page}: ${name} --${option}`)
    }
  }
  t.ok(options > 5, `${options} options`)
})

t.test('the server accepts the Redis URLs that docs/configuration.md shows', async (t) => {
  const urls = codeBlock('docs/configuration.md', 'Connect to Redis', 'text').trim().split('\n')
  t.equal(urls.length, 3)
  for (const url of urls) t.strictSame(faultsOf({ REDIS_URL: url }), [], url)
})

t.test('the demo prints what the README shows', async (t) => {
  const source = read('demo/main.ts').replaceAll(`\${at.publicUrl}`, 'http://localhost:3000')
  const lines = codeBlock('README.md', 'Quick start', 'text').split('\n')
  for (const line of lines.filter((text) => text.trim() !== '')) t.ok(source.includes(`\n${line}\n`), line)
})

for (const [name, heading] of [
  ['UPSTREAM_HEADERS', 'Send further header fields to the resource server'],
  ['UPSTREAM_INVALID_TOKEN', 'Recognise the response to an invalid token'],
  ['OAUTH_REFUSED_GRANT', 'Recognise a refused refresh token'],
  ['OAUTH_AUTHORIZE_PARAMS', 'Send further parameters to the sign-in page'],
  ['OAUTH_END_SESSION_URL', 'Sign out at the authorization server'],
  ['OAUTH_REUSE_SECONDS', 'Name the grace period of the authorization server'],
] as const) {
  t.test(`the server accepts the ${name} that docs/configuration.md shows`, async (t) => {
    const code = codeBlock('docs/configuration.md', heading, 'sh')
    const [, value = ''] = new RegExp(`^${name}='?(.*?)'?$`, 'm').exec(code) ?? []
    t.not(value, '')
    t.strictSame(faultsOf({ [name]: value }), [])
  })
}

/** Blocks that no test names by their heading, and what checks them instead. */
const CHECKED_OTHERWISE: Readonly<Record<string, string>> = {
  'CONTRIBUTING.md: Tests': '.ci/run, and the options above',
  'CONTRIBUTING.md: The first half hour': 'test/verify/dev.test.ts starts it, and .ci/run does the others',
  'README.md: Quick start': 'test/repository/demo.test.ts starts the demo',
  'docs/benchmarks.md: How to repeat it': 'test/verify/bench.test.ts starts the benchmarks',
  'docs/deployment.md: Container': 'test/verify/deployment.test.ts reads all docker commands',
  'docs/first-day.md': 'the arguments above; test/operator/measure/live.test.ts runs the command',
  'docs/getting-started.md': 'the last check of its test in test/verify/vite.test.ts',
  'docs/operations.md':
    'test/config/operations.test.ts reads the JSON, test/repository/client.test.ts compiles the rest',
  'docs/servers.md': 'test/flows/servers.test.ts and interop.test.ts start a server with each block',
  'docs/spa.md: Develop with Vite': 'test/repository/client.test.ts compiles it and compares its proxy',
  'docs/spa.md: Read with TanStack Query, SWR or a timer': 'test/repository/client.test.ts compiles it',
  'docs/spa.md: React and Vue': 'test/repository/client.test.ts compiles it',
  'docs/spa.md: Errors': 'test/repository/client.test.ts parses it',
  'docs/reverse-proxies.md: lighttpd': 'test/verify/other-proxies.test.ts starts each program with its block',
  'docs/reverse-proxies.md: h2o': 'as above',
  'docs/reverse-proxies.md: nghttpx': 'as above',
  'docs/spa.md: The session': 'test/repository/client.test.ts parses it',
  'examples/operations/README.md': 'test/browser/operations-page.test.ts runs the page',
  'examples/package/README.md': 'test/verify/package.test.ts builds the page',
  'examples/vite/README.md': 'test/verify/vite.test.ts runs both scripts',
}

t.test('a test runs or checks each code block', async (t) => {
  const tests = filesBelow('test', '.ts').map(read)
  const used = new Set<string>()
  for (const page of PAGES) {
    for (const { heading, language } of codeBlocks(page)) {
      if (language === 'mermaid') continue
      const otherwise = [page, `${page}: ${heading}`].find((key) => key in CHECKED_OTHERWISE)
      if (otherwise !== undefined) used.add(otherwise)
      const isNamed = tests.some((text) => text.includes(`'${page}'`) && text.includes(`'${heading}'`))
      t.ok(isNamed || otherwise !== undefined, `${page}: ${heading}`)
    }
  }
  t.strictSame([...used].sort(), Object.keys(CHECKED_OTHERWISE).sort(), 'no entry is left over')
})
