import { handleHelpAndVersion } from '../src/version.ts'
import { readDeclaredOperations } from './operations.ts'
import { PROFILES, READINGS } from './profiles.ts'
import { createSandbox } from './sandbox.ts'
import type { SandboxOptions } from './settings.ts'

/**
 * The sandbox as a process of its own. Everything has a default that fits a server on
 * `http://localhost:3000`; prints its address when it listens, and sends `{url, env}` to a parent
 * that forked it: the server's variables for the profile. Ends at SIGTERM and SIGINT, or with that parent.
 */
const args = process.argv.slice(2)
if (args.length === 1 && args[0] === '--profiles') {
  const names = Object.entries(PROFILES).map(([name, profile]) => ({ name, ...profile }))
  const width = Math.max(...names.map(({ name }) => name.length)) + 2
  for (const { name, software, version, measuredOn, special } of names)
    process.stdout.write(`${name.padEnd(width)}${software} ${version}, ${measuredOn}: ${special}\n`)
  process.exit(0)
}
handleHelpAndVersion(
  args,
  `Runs the sandbox platform, which imitates both servers of the data platform, for development and tests.

  PORT=4000 node dist/sandbox/main.js

  --profiles            lists the measured servers that SANDBOX_PROFILE may name
  --help                prints this text
  --version             prints the version

docs/sandbox.md lists its variables and users.
`,
)

// As for the server, an empty variable is one that is not set.
const env = Object.fromEntries(Object.entries(process.env).filter(([, value]) => value !== ''))

const callback = env.SANDBOX_CALLBACK ?? 'http://localhost:3000/auth/callback'
if (!URL.canParse(callback)) fail('SANDBOX_CALLBACK must be a URL')
const wacs = env.SANDBOX_WAC?.split(',').map((wac) => wac.trim())
const sandbox = createSandbox({
  client: {
    clientId: env.SANDBOX_CLIENT_ID ?? 'demo-client',
    clientSecret: env.SANDBOX_CLIENT_SECRET ?? 'demo-secret',
    callback,
  },
  tokenLifeSeconds: numberFrom('SANDBOX_TOKEN_SECONDS', 3600),
  control: env.SANDBOX_CONTROL !== 'off',
  ...profileFrom(env.SANDBOX_PROFILE),
  ...(env.OPERATIONS_FILE ? { operations: operationsIn(env.OPERATIONS_FILE) } : {}),
  ...(wacs === undefined ? {} : { wacs }),
  ...(env.SANDBOX_SCOPE === undefined ? {} : { scope: env.SANDBOX_SCOPE }),
})

const WHERE_FROM =
  'HOST and PORT name them; under npm run dev, which starts this sandbox, AUTH_URL names the port.'
const host = env.HOST ?? '127.0.0.1'
const port = numberFrom('PORT', 4000)
const url = await sandbox
  .listen({ host, port })
  .catch(({ code }: NodeJS.ErrnoException) =>
    fail(`The sandbox cannot listen on ${host}, port ${port} (${code}). ${WHERE_FROM}`),
  )
console.log(`Sandbox platform on ${url}`)
process.send?.({ url, env: sandbox.env })

for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, stop)
if (process.connected) process.once('disconnect', stop)

async function stop(): Promise<void> {
  await sandbox.close()
  process.exit(0)
}

function numberFrom(name: string, fallback: number): number {
  const text = env[name]
  if (text === undefined) return fallback
  if (/^\d{1,9}$/.test(text)) return Number(text)
  return fail(`${name} must be a whole number`)
}

function profileFrom(name: string | undefined): Pick<SandboxOptions, 'profile' | 'faults'> {
  if (name === undefined) return {}
  if (Object.hasOwn(PROFILES, name)) return { profile: PROFILES[name]! }
  if (Object.hasOwn(READINGS, name)) return { faults: READINGS[name]! }
  return fail(
    `SANDBOX_PROFILE must be one of ${[...Object.keys(PROFILES), ...Object.keys(READINGS)].join(', ')}`,
  )
}

function operationsIn(path: string) {
  try {
    return readDeclaredOperations(path)
  } catch (error) {
    const why = (error as Error).message
    return fail(`OPERATIONS_FILE must be the path of a file that the server accepts, but is not (${why})`)
  }
}

function fail(message: string): never {
  console.error(message)
  process.exit(1)
}
