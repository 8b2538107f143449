import { Pool } from 'undici'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { createKeyring } from '../../src/keyring.ts'
import { Secret } from '../../src/secret.ts'
import { createSessionCookies, recordKeyOf } from '../../src/session/cookies.ts'
import { sealTokens } from '../../src/session/sealed-tokens.ts'
import type { SessionStore } from '../../src/store/store.ts'
import type { Teardown } from '../helpers/child.ts'
import { requireDocumented } from '../helpers/documented.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { type Env, type ServerProcess, startServer } from '../helpers/server-process.ts'
import { CLIENT } from '../helpers/system.ts'
import { elapsed } from '../helpers/wait.ts'

const MAX_MS = 43_200_000
const NEW_AT_ONCE = 40

/** A user's browser, as far as its cookies go. */
export type Jar = Map<string, string>

/** A session with tokens that the sandbox takes, and that are due for a refresh after so many seconds. */
async function makeSession(
  store: SessionStore,
  sandbox: Sandbox,
  secret: string,
  dueInSeconds: number,
): Promise<Jar> {
  const form = {
    grant_type: 'password',
    client_id: CLIENT.clientId,
    client_secret: CLIENT.clientSecret,
    redirect_uri: 'http://localhost/registered',
    username: 'alice',
    password: 'wonderland',
    scope: sandbox.baseUrl,
  }
  const body = new URLSearchParams(form)
  const answer = await fetch(`${sandbox.authUrl}/oauth/token`, { method: 'POST', body })
  const granted = (await answer.json()) as { access_token: string; refresh_token: string }
  const keyring = createKeyring([new Secret(secret)])
  const cookies = createSessionCookies({ keyring, publicUrl: 'http://localhost', secure: false })
  const sessionId = cookies.newSessionId()
  const key = recordKeyOf(sessionId)
  const createdAt = Date.now()
  const tokens = {
    accessToken: new Secret(granted.access_token),
    refreshToken: new Secret(granted.refresh_token),
    // Due a third of its life before its end.
    lifeSeconds: dueInSeconds * 1.5,
    expiresAt: createdAt + dueInSeconds * 1_500,
    scope: null,
  }
  const sealed = sealTokens(keyring, key, tokens)
  const record = { tokens: sealed, createdAt, endsAt: createdAt + MAX_MS, client: CLIENT.clientId }
  await store.schedule(key, dueInSeconds * 1_000)
  await store.create(key, { ...record, flow: 'code' }, 15_000)
  await store.confirm(key)
  const jar: Jar = new Map()
  const reply = { setCookie: (name: string, value: string) => jar.set(name, value) } as never
  cookies.setSession(reply, cookies.sign(sessionId))
  cookies.setRecordKey(reply, key)
  return jar
}

/** Sessions as they are under one secret, one for each number of seconds after which it is due. */
export async function makeSessions(
  store: SessionStore,
  sandbox: Sandbox,
  secret: string,
  dueInSeconds: number[],
): Promise<Jar[]> {
  const jars: Jar[] = []
  for (let at = 0; at < dueInSeconds.length; at += NEW_AT_ONCE) {
    const part = dueInSeconds.slice(at, at + NEW_AT_ONCE)
    jars.push(...(await Promise.all(part.map((seconds) => makeSession(store, sandbox, secret, seconds)))))
  }
  return jars
}

/** Two server processes behind something that sends calls to those that take them, one call at a time each. */
export interface Deployment {
  /** The status of a call through one of the replicas, whose cookies the jar takes. */
  call(jar: Jar, path: string): Promise<number>
  /** Restarts one after the other with these secrets; `between` while there are old and new ones. */
  roll(secrets: string, between: () => Promise<void>): Promise<void>
  /** What was logged so far, by processes that have ended too. */
  output(): string
}

interface Member {
  server: ServerProcess
  pool: Pool
  open: boolean
  underWay: number
}

export async function startDeployment(t: Teardown, env: Env, secrets: string): Promise<Deployment> {
  let output = ''
  const start = async (port?: string): Promise<Member> => {
    const server = await startServer(t, {
      ...env,
      SESSION_SECRET: secrets,
      ...(port === undefined ? {} : { PORT: port, PUBLIC_URL: `http://localhost:${port}` }),
    })
    const ready = async () => (await fetch(`${server.opsUrl}/readyz`)).status === 200
    while (!(await ready())) await elapsed(20)
    return { server, pool: new Pool(server.url, { connections: 16 }), open: true, underWay: 0 }
  }
  const members = [await start(), await start()]
  t.teardown(() => Promise.all(members.map(({ pool }) => pool.close())))

  async function restart(at: number, next: string): Promise<void> {
    const member = members[at]!
    // As a balancer does that looks at /readyz: nothing new, and what is under way ends.
    member.open = false
    while (member.underWay > 0) await elapsed(5)
    await member.pool.close()
    if ((await member.server.stop()) !== 0) throw new Error(`it did not stop well: ${member.server.output()}`)
    output += member.server.output()
    secrets = next
    members[at] = await start(new URL(member.server.url).port)
  }

  return {
    async call(jar, path) {
      const open = members.filter((member) => member.open)
      const member = open[Math.floor(Math.random() * open.length)]!
      member.underWay += 1
      try {
        const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ')
        const headers = { cookie, 'sec-fetch-site': 'same-origin' }
        const answer = await member.pool.request({ method: 'GET', path, headers })
        for (const line of [answer.headers['set-cookie'] ?? []].flat()) {
          const [, name, value] = /^([^=]+)=([^;]*)/.exec(line) ?? []
          jar.set(name!, value!)
        }
        const body = await answer.body.text()
        const header = (name: string) => answer.headers[name]?.toString()
        const { statusCode: status } = answer
        requireDocumented(portOfUrl(member.server.url), { method: 'GET', target: path, status, header, body })
        return status
      } finally {
        member.underWay -= 1
      }
    },
    async roll(next, between) {
      await restart(0, next)
      await between()
      await restart(1, next)
    },
    output: () => output + members.map(({ server }) => server.output()).join(''),
  }
}

/** So many of the sessions call much more often than the others. */
const LIVELY = 30

/** Calls all the time: each session in its turn, and the lively ones in between. */
export function startCalls(deployment: Deployment, jars: Jar[], atOnce: number) {
  const answers = new Map<string, number>()
  let next = 0
  let stopped = false

  async function loop(): Promise<void> {
    while (!stopped) {
      const lively = Math.random() < 0.3
      const jar = lively ? jars[Math.floor(Math.random() * LIVELY)]! : jars[next % jars.length]!
      if (!lively) next += 1
      // As a page does when it is opened: now and then it asks who is signed in.
      const path = Math.random() < 0.1 ? '/auth/session' : '/flux/temperature'
      const status = await deployment.call(jar, path).catch((error: Error) => error.message)
      const kind = `${status} ${path}`
      answers.set(kind, (answers.get(kind) ?? 0) + 1)
      await elapsed(25)
    }
  }
  const loops = Promise.all(Array.from({ length: atOnce }, loop))

  return {
    answers,
    /** Resolves when each session has been called so many times more. */
    async rounds(count: number): Promise<void> {
      const until = next + count * jars.length
      while (next < until) await elapsed(10)
    },
    async stop(): Promise<void> {
      stopped = true
      await loops
    },
  }
}
