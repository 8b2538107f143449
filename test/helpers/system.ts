// The sandbox platform and the server in the test process, and a whole sign-in between them.

import { createSandbox, type Sandbox } from '../../sandbox/sandbox.ts'
import type { SandboxOptions } from '../../sandbox/settings.ts'
import { type App, buildApp } from '../../src/app.ts'
import { parseConfig } from '../../src/config/config.ts'
import { createSessionCookies } from '../../src/http/cookies.ts'
import { createKeyring } from '../../src/keyring.ts'
import { createLog } from '../../src/log.ts'
import { Secret } from '../../src/secret.ts'
import { type Answer, type Browser, createBrowser } from './browser.ts'
import type { Teardown } from './child.ts'
import { checkResponsesOf } from './documented.ts'
import { collectLog } from './log-lines.ts'
import { freePort } from './ports.ts'
import type { ServerProcess } from './server-process.ts'
import { elapsed, until } from './wait.ts'

/** The secret has characters that a form must encode, so a wrong encoding is refused. */
export const CLIENT = { clientId: 'test-client', clientSecret: 's3cr&t+%/=?ü "x' }

const SECRET = 'the-first-secret-of-the-tests-of-32-characters'

/** A session cookie that a server of this secret has signed and whose session it does not have, with the names for http and https. */
export function cookieWithoutSession(): readonly [name: string, value: string] {
  const keyring = createKeyring([new Secret(SECRET)])
  const cookies = createSessionCookies({ keyring, publicUrl: 'http://localhost', secure: false })
  const value = cookies.sign(cookies.newSessionId())
  return ['Cookie', `session=${value}; __Host-Http-session=${value}`]
}

export interface Bff {
  readonly publicUrl: string
  readonly opsUrl: string
  readonly app: App
  /** All log output, at the most verbose level. */
  readonly log: () => string
  browser(): Browser
}

/** Starts the sandbox platform on a free port, with one registered client. */
export async function startSandbox(t: Teardown, options: Partial<SandboxOptions> = {}): Promise<Sandbox> {
  const client = { ...CLIENT, callback: 'http://localhost/registered' }
  const sandbox = createSandbox({ client, ...options })
  await sandbox.listen()
  t.teardown(() => sandbox.close())
  return sandbox
}

type Platform = Pick<Sandbox, 'authUrl' | 'baseUrl'>

/** The part of a server's environment that describes the platform of a test. */
export function platformEnv({ authUrl, baseUrl }: Platform) {
  return {
    AUTH_URL: authUrl,
    BASE_URL: baseUrl,
    CLIENT_ID: CLIENT.clientId,
    CLIENT_SECRET: CLIENT.clientSecret,
    WAC: 'DEMO',
  }
}

/** Starts the server in this process, on real sockets, in front of `platform`. `env` overrides a valid configuration. */
export async function startBff(
  t: Teardown,
  platform: Platform,
  env: Record<string, string> = {},
): Promise<Bff> {
  const port = env.PORT === undefined ? await freePort() : Number(env.PORT)
  const opsPort = await freePort()
  const parsed = parseConfig({
    HOST: '127.0.0.1',
    PORT: String(port),
    OPS_PORT: String(opsPort),
    PUBLIC_URL: `http://localhost:${port}`,
    ...platformEnv(platform),
    SESSION_SECRET: SECRET,
    SESSION_STORE: env.REDIS_URL === undefined ? 'memory' : 'redis',
    LOG_LEVEL: 'trace',
    ACCESS_LOG: 'all',
    ...env,
  })
  if (!parsed.ok) throw new Error(parsed.faults.join('\n'))
  const { config } = parsed
  const { sink, text } = collectLog()
  const app = await buildApp(config, createLog(config.logLevel, sink), (message) =>
    sink.write(`refused: ${message}\n`),
  )
  try {
    await app.ops.listen({ host: '127.0.0.1', port: opsPort })
    await app.server.listen({ host: '127.0.0.1', port })
  } catch (error) {
    await app.server.close()
    // Another process took the port first.
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE' || env.PORT !== undefined) throw error
    return await startBff(t, platform, env)
  }
  app.start()
  checkResponsesOf(t, port, config, () => app.server.swagger())
  t.teardown(() => app.server.close())
  const { publicUrl } = config
  return {
    publicUrl,
    opsUrl: `http://127.0.0.1:${opsPort}`,
    app,
    log: text,
    browser: () => createBrowser(publicUrl),
  }
}

/** A server in this process or in its own. */
type Ops = Pick<Bff, 'opsUrl'> | Pick<ServerProcess, 'opsUrl'>

/** The status of `/readyz`, or of another path of the operations port. */
export async function opsStatus({ opsUrl }: Ops, path = '/readyz'): Promise<number> {
  const response = await fetch(`${opsUrl}${path}`)
  await response.text()
  return response.status
}

/** Polls `/readyz` until it responds 200. */
export async function untilReady(server: Ops): Promise<void> {
  await until('the server is ready', async () => (await opsStatus(server)) === 200)
}

/** All metrics as the server prints them. */
export async function metricsOf({ opsUrl }: Ops): Promise<string> {
  return await (await fetch(`${opsUrl}/metrics`)).text()
}

/** Submits the user's decision at the authorization server. Returns the URL of the redirect back. */
export async function decide(
  sandbox: Pick<Sandbox, 'url'>,
  authorizeUrl: string,
  decision: 'accept' | 'refuse' = 'accept',
  user = { username: 'alice', password: 'wonderland' },
): Promise<string> {
  const form = new URLSearchParams({ ...user, decision })
  const response = await fetch(authorizeUrl, { method: 'POST', body: form, redirect: 'manual' })
  const location = response.headers.get('location')
  if (location === null)
    throw new Error(`${sandbox.url} did not send the browser back: ${await response.text()}`)
  return location
}

/** A complete sign-in of this browser. Returns the response of the callback. */
export async function signIn(
  browser: Browser,
  sandbox: Pick<Sandbox, 'url'>,
  returnTo = '/',
): Promise<Answer> {
  const start = await browser.navigate(`/auth/login?returnTo=${encodeURIComponent(returnTo)}`)
  if (start.status !== 303) throw new Error(`/auth/login answered ${start.status}: ${start.text}`)
  return await comeBack(browser, sandbox, start)
}

/** More would hide a fault that only some sign-ins meet. */
const MOST_SIGN_INS = 4

/**
 * A complete sign-in with a session at its end, for tests of something else. Tries again after 502 to 504: on a machine that is held
 * up a limit of the server may have passed. Throws with any other response, and with the last one.
 */
export async function signInSurely(browser: Browser, sandbox: Pick<Sandbox, 'url'>): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    const start = await browser.navigate('/auth/login?returnTo=%2F')
    const answer = start.status === 303 ? await comeBack(browser, sandbox, start) : start
    const { status, text } = answer
    if (status === 303) return
    if (status < 502 || status > 504 || tries === MOST_SIGN_INS) {
      throw new Error(`sign-in ${tries} answered ${status}: ${text}`)
    }
    // A server that has just lost its connection to the store makes another one.
    await elapsed(500)
  }
}

/** The user accepts at the authorization server. Returns the response of the callback. */
async function comeBack(browser: Browser, sandbox: Pick<Sandbox, 'url'>, start: Answer): Promise<Answer> {
  const back = await decide(sandbox, String(start.headers.location))
  return await browser.navigate(back, { from: 'cross-site' })
}
