import t, { type Test } from 'tap'
import type { Browser } from '../helpers/browser.ts'
import { type Bff, signIn, startBff, startSandbox } from '../helpers/system.ts'
import { ask, field, OWN, portOf, problemOf } from '../http/wire.ts'
import { BAD_FLUX, BAD_SITE, BAD_WAC, GOOD } from './odd-paths.ts'

async function ready(t: Test, env: Record<string, string> = {}) {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, env)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  return { sandbox, bff, cookie: cookieOf(browser) }
}

function cookieOf(browser: Browser): readonly [string, string] {
  return ['Cookie', `session=${browser.cookies.get('session')!.value}`]
}

t.test('a valid path becomes the documented one', async (t) => {
  const { sandbox, bff, cookie } = await ready(t)
  for (const [target, upstream] of GOOD) {
    sandbox.journal.clear()
    await ask(portOf(bff), { target, headers: [OWN, cookie] })
    t.strictSame(
      sandbox.journal.entries().map(({ method, url }) => `${method} ${url}`),
      [`GET ${upstream}`],
      target,
    )
  }
})

async function refusedEach(
  t: Test,
  bff: Bff,
  question: { method: string; body?: string },
  targets: string[],
  cookie: readonly [string, string],
): Promise<void> {
  for (const target of targets) {
    const headers = [OWN, cookie, ['Content-Type', 'application/json']] as const
    const answer = await ask(portOf(bff), { ...question, target, headers })
    t.equal(answer.status, 400, target.slice(0, 60))
    t.match(
      problemOf(answer),
      { code: 'invalid_request', detail: /fluxId|wac|siteID|percent|fragment|HTTP/ },
      target.slice(0, 60),
    )
    t.equal(field(answer, 'location'), undefined, target.slice(0, 60))
  }
}

t.test('a malformed fluxId or account is 400, and nothing is sent', async (t) => {
  const { sandbox, bff, cookie } = await ready(t)
  sandbox.journal.clear()
  const targets = [
    ...BAD_FLUX.map((part) => `/flux/${part}`),
    ...BAD_FLUX.map((part) => `/flux/DEMO/${part}`),
    ...BAD_WAC.map((part) => `/flux/${part}/a`),
  ]
  await refusedEach(t, bff, { method: 'GET' }, targets, cookie)
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('a malformed siteId or account is 400, and nothing is sent', async (t) => {
  const { sandbox, bff, cookie } = await ready(t)
  sandbox.journal.clear()
  const targets = [
    ...BAD_SITE.filter((part) => part !== '').map((part) => `/site/${part}`),
    ...BAD_SITE.filter((part) => part !== '').map((part) => `/site/DEMO/${part}`),
    ...BAD_WAC.map((part) => `/site/${part}/1`),
  ]
  await refusedEach(t, bff, { method: 'PUT', body: '{}' }, targets, cookie)
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('a missing part is 404, and nothing is sent', async (t) => {
  const { sandbox, bff, cookie } = await ready(t)
  sandbox.journal.clear()
  for (const target of ['/flux', '/flux/', '/flux//', '/flux//a', '/flux/DEMO/', '/flux///', '/flux/?a=1']) {
    t.equal((await ask(portOf(bff), { target, headers: [OWN, cookie] })).status, 404, target)
  }
  for (const target of ['/site/', '/site//', '/site//1', '/site/DEMO/', '/site/?a=1']) {
    const question = { method: 'PUT', target, body: '{}', headers: [OWN, cookie] }
    t.equal((await ask(portOf(bff), question)).status, 404, target)
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('the largest siteId is sent to the last digit', async (t) => {
  const { sandbox, bff, cookie } = await ready(t)
  for (const [given, sent] of [
    ['9007199254740991', '9007199254740991'],
    ['0', '0'],
    ['007', '7'],
  ] as const) {
    sandbox.journal.clear()
    const headers = [OWN, cookie, ['Content-Type', 'application/json']] as const
    await ask(portOf(bff), { method: 'PUT', target: `/site/${given}`, headers, body: '{}' })
    const [entry] = sandbox.journal.entries()
    t.equal(entry?.url, `/DEMO/Infrastructure/Site/${sent}`)
    t.equal((JSON.parse(entry?.body ?? '{}') as { siteID: number }).siteID, Number(sent))
  }
})

t.test('dots and slashes in a path reach no other path of the platform', async (t) => {
  const { sandbox, bff, cookie } = await ready(t)
  sandbox.journal.clear()
  for (const target of [
    '/flux/../json/reply/UpdateSite',
    '/flux/DEMO/../../oauth/token',
    '/flux/DEMO/a/../../x',
    '/flux/./a',
    '/./flux/a',
    '/x/../flux/a',
    '/flux/%2e%2e/%2e%2e',
    '/flux/DEMO/%2e%2e%2f%2e%2e%2foauth%2ftoken',
    '//evil.test/flux/a',
    '/flux//evil.test',
    '/flux/https:%2f%2fevil.test',
    '/flux/http://evil.test/',
    '/flux/@evil.test',
    '/flux/evil.test:80',
    '\\flux\\a',
    '/flux\\a',
  ]) {
    const answer = await ask(portOf(bff), { target, headers: [OWN, cookie] })
    t.ok(answer.status === 400 || answer.status === 404, `${target}: ${answer.status}`)
    t.equal(field(answer, 'location'), undefined, target)
  }
  t.strictSame(
    sandbox.journal.entries().map(({ url }) => url),
    [],
  )
})

t.test('without a configured or given account the problem names wac', async (t) => {
  const { sandbox, bff, cookie } = await ready(t, { WAC: '' })
  sandbox.journal.clear()
  const json = ['Content-Type', 'application/json'] as const
  for (const question of [
    { target: '/flux/a' },
    { method: 'PUT', target: '/site/1', body: '{}' },
    { method: 'POST', target: '/site', body: '{"siteID":1}' },
  ]) {
    const answer = await ask(portOf(bff), { ...question, headers: [OWN, cookie, json] })
    t.equal(answer.status, 400, question.target)
    t.match(problemOf(answer), { code: 'invalid_request', detail: /\bwac\b/ }, question.target)
  }
  t.equal(sandbox.journal.entries().length, 0)
  for (const question of [
    { target: '/flux/ACME/a' },
    { method: 'PUT', target: '/site/ACME/1', body: '{}' },
    { method: 'POST', target: '/site', body: '{"siteID":1,"wac":"ACME"}' },
  ]) {
    t.equal(
      (await ask(portOf(bff), { ...question, headers: [OWN, cookie, json] })).status,
      200,
      question.target,
    )
  }
})

t.test('an account that is not allowed is 403 on every route, and nothing is sent', async (t) => {
  const { sandbox, bff, cookie } = await ready(t, { WAC_ALLOWED: 'DEMO,OTHER' })
  sandbox.journal.clear()
  const json = ['Content-Type', 'application/json'] as const
  for (const question of [
    { target: '/flux/ACME/a' },
    { target: '/flux/demo/a' },
    { method: 'PUT', target: '/site/ACME/1', body: '{}' },
    { method: 'POST', target: '/site', body: '{"siteID":1,"wac":"ACME"}' },
  ]) {
    const answer = await ask(portOf(bff), { ...question, headers: [OWN, cookie, json] })
    t.equal(answer.status, 403, question.target)
    t.match(problemOf(answer), { code: 'wac_not_allowed' })
  }
  t.equal(sandbox.journal.entries().length, 0)
  t.equal((await ask(portOf(bff), { target: '/flux/DEMO/a', headers: [OWN, cookie] })).status, 200)
  t.equal((await ask(portOf(bff), { target: '/flux/a', headers: [OWN, cookie] })).status, 200, 'the default')
})
