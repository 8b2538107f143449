import { writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import type { Browser } from '../helpers/browser.ts'
import { startConnectProxy } from '../helpers/connect-proxy.ts'
import { logLines } from '../helpers/log-lines.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { presentations } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { ALICE, sendPassword } from './sign-ins.ts'

const DECLARED = {
  operations: { GetMe: { method: 'GET', path: '/{wac}/User/me' } },
  identity: { operation: 'GetMe', id: '/id', name: '/name' },
}

function declare(content: object): string {
  const file = `${makeFolder('identity')}/operations.json`
  writeFileSync(file, JSON.stringify(content))
  return file
}

const OPERATIONS_FILE = declare(DECLARED)

type AnswerWith = (request: IncomingMessage, response: ServerResponse) => void

/** Signs in where the platform answers the question after the user with `answer`. */
async function signInWith(t: Test, answer: AnswerWith, env: Record<string, string> = {}) {
  const asked: IncomingMessage[] = []
  const server = createServer((request, response) => {
    asked.push(request)
    answer(request, response)
  })
  const baseUrl = `http://127.0.0.1:${await listenOnLoopback(t, server)}`
  const sandbox = await startSandbox(t)
  const platform = { authUrl: sandbox.authUrl, baseUrl }
  const bff = await startBff(t, platform, { OPERATIONS_FILE, ...env })
  const browser = bff.browser()
  t.equal((await signIn(browser, sandbox)).status, 303)
  return { asked, bff, sandbox, user: await userOf(browser) }
}

async function userOf(browser: Browser): Promise<unknown> {
  return (await browser.fetch('/auth/session')).json().user
}

const json = (body: string) => (_: IncomingMessage, response: ServerResponse) => response.end(body)

t.test('the user is known by /User/me where a user of any id can be read beside it', async (t) => {
  const GetUser = { method: 'GET', path: '/{wac}/User/{userId}', parameters: { userId: 'id' } }
  const both = { ...DECLARED, operations: { GetUser, ...DECLARED.operations } }
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { OPERATIONS_FILE: declare(both) })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  t.strictSame(await userOf(browser), { id: 'user-alice', name: 'alice' })
  for (const path of ['me', 'bob']) await browser.fetch(`/data/DEMO/User/${path}`)
  t.match(
    logLines(bff.log(), 'request').flatMap(({ operation }) => operation ?? []),
    ['GetMe', 'GetUser'],
  )
})

t.test('a session knows its user, through each refresh, and the log has digits for the id', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { OPERATIONS_FILE })
  const browser = bff.browser()
  sandbox.faults.set({ expiresIn: { value: 1 } })
  await signIn(browser, sandbox)
  t.strictSame(await userOf(browser), { id: 'user-alice', name: 'alice' })
  await until('two refreshes', () => presentations(sandbox).length >= 2)
  t.strictSame(await userOf(browser), { id: 'user-alice', name: 'alice' })
  await browser.fetch('/auth/logout', { method: 'POST' })
  const [begun] = logLines(bff.log(), 'login.succeeded')
  const [ended] = logLines(bff.log(), 'session.ended')
  t.match(begun?.user, /^[0-9a-f]{12}$/)
  t.equal(ended?.user, begun?.user)
  t.notMatch(bff.log(), /user-alice/)
})

t.test('the question is asked once, with the bearer and the headers of every call', async (t) => {
  const env = { UPSTREAM_HEADERS: '{"X-Api-Version":"7"}' }
  const { asked, user } = await signInWith(t, json('{"id":"u 1","name":"Ünal"}'), env)
  t.strictSame(user, { id: 'u 1', name: 'Ünal' })
  t.equal(asked.length, 1)
  t.match(asked[0]!, {
    method: 'GET',
    url: '/DEMO/User/me?format=JSON',
    headers: {
      authorization: /^Bearer ./,
      'x-api-version': '7',
      'user-agent': /^token-handler-bff\//,
      'x-request-id': /./,
      accept: 'application/json',
    },
  })
})

t.test('the question names no format in its query where the operation says so', async (t) => {
  const operations = { GetMe: { ...DECLARED.operations.GetMe, format: 'accept' } }
  const env = { OPERATIONS_FILE: declare({ ...DECLARED, operations }) }
  const { asked, user } = await signInWith(t, json('{"id":"u","name":null}'), env)
  t.strictSame(user, { id: 'u', name: null })
  t.match(asked[0]!, { url: /^\/DEMO\/User\/me$/, headers: { accept: 'application/json' } })
})

t.test('the question passes the egress proxy, with the token where UPSTREAM_TOKEN_IN says', async (t) => {
  const proxy = await startConnectProxy(t)
  const identity = { operation: 'GetMe', id: '/a~1b/0/id', name: '/name' }
  const { asked, user } = await signInWith(t, json('{"a/b":[{"id":12345678901234567890}],"name":null}'), {
    OPERATIONS_FILE: declare({ ...DECLARED, identity }),
    UPSTREAM_TOKEN_IN: 'query',
    HTTP_PROXY: proxy.url,
  })
  t.strictSame(user, { id: '12345678901234567890', name: null }, 'an integer is kept digit by digit')
  t.match(asked[0]!.url, /^\/DEMO\/User\/me\?format=JSON&access_token=./)
  t.equal(asked[0]!.headers.authorization, undefined)
  t.ok(proxy.targets.includes(asked[0]!.headers.host!))
})

t.test('a sign-in by password knows the user at once', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { OPERATIONS_FILE, OAUTH_FLOWS: 'code,password' })
  const answer = await sendPassword(bff.browser(), ALICE)
  t.match(answer.json(), { user: { id: 'user-alice', name: 'alice' } })
})

t.test('without an identity nothing is asked, and the user is null', async (t) => {
  const { operations } = DECLARED
  const env = { OPERATIONS_FILE: declare({ operations }) }
  const { asked, user } = await signInWith(t, json('{"id":"a"}'), env)
  t.equal(user, null)
  t.strictSame(asked, [])
})

const NO_ANSWERS: Readonly<Record<string, AnswerWith>> = {
  'another status': (_, response) => response.writeHead(401).end('{"id":"a"}'),
  'another status with a body that is cut off': (_, response) =>
    response.writeHead(503, { 'content-length': '10' }).write('a', () => response.destroy()),
  'no JSON': json('<user/>'),
  'no id': json('{"name":"a"}'),
  'an id that is a number with a fraction': json('{"id":1.5}'),
  'an id of 257 characters': json(`{"id":"${'a'.repeat(257)}"}`),
  'an empty id': json('{"id":""}'),
  'a control character in the id': json('{"id":"a\\u0007"}'),
  'a format character in the name': json('{"id":"a","name":"\\u202eevil"}'),
  'a lone surrogate in the name': json('{"id":"a","name":"\\ud800"}'),
  'a name of 257 characters': json(`{"id":"a","name":"${'a'.repeat(257)}"}`),
  'more than 64 KiB': json(`{"id":"a","more":"${'a'.repeat(65_536)}"}`),
  'a connection that ends': (request) => void request.socket.destroy(),
  'nothing for three seconds': () => {},
}

t.test('without an answer the session has no user, and the log a warning', async (t) => {
  let answer: AnswerWith = json('{"id":"a"}')
  const { asked, bff, sandbox } = await signInWith(t, (...both) => answer(...both))
  for (const [what, next] of Object.entries(NO_ANSWERS)) {
    answer = next
    asked.length = 0
    const warnings = logLines(bff.log(), 'login.unidentified').length
    const browser = bff.browser()
    await signIn(browser, sandbox)
    t.match((await browser.fetch('/auth/session')).json(), { authenticated: true, user: null }, what)
    t.equal(asked.length, 1, `${what}: no refresh, no repeat`)
    const [warning, ...more] = logLines(bff.log(), 'login.unidentified').slice(warnings)
    const reason = what.startsWith('another status') ? /^status \d+/ : /./
    t.match(warning, { reason, recordKey: undefined }, what)
    t.strictSame(more, [], what)
  }
})

t.test('no connection is used twice: its server may end one as it is used', async (t) => {
  const used = new WeakSet<object>()
  const { bff, sandbox } = await signInWith(t, ({ socket }, response) => {
    if (used.has(socket)) socket.destroy()
    else response.end('{"id":"a"}')
    used.add(socket)
  })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  t.match(await userOf(browser), { id: 'a' })
})
