import t from 'tap'
import type { Browser } from '../helpers/browser.ts'
import { startChild } from '../helpers/child.ts'
import { startRedis } from '../helpers/redis.ts'
import { through } from '../helpers/replicas.ts'
import { platformEnv, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { SESSION_SECRET, sessions } from './run.ts'

async function statusOf(browser: Browser): Promise<number> {
  return (await browser.fetch('/flux/temperature')).status
}

t.test('an operator lists the sessions of a running deployment and ends them on every replica', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const revocation = `${sandbox.authUrl}/oauth/revoke`
  const env = { REDIS_URL: redis.url, OAUTH_REVOCATION_URL: revocation, SESSION_CACHE_MS: '0' }
  const [one, other] = [await startBff(t, sandbox, env), await startBff(t, sandbox, env)]
  await Promise.all([one, other].map(untilReady))
  const operator = {
    REDIS_URL: redis.url,
    SESSION_SECRET,
    OAUTH_REVOCATION_URL: revocation,
    ...platformEnv(sandbox),
  }
  const printed: string[] = []
  const run = async (...args: string[]) => {
    const ran = await sessions(t, operator, ...args)
    printed.push(...ran.lines, ran.stderr)
    return ran
  }

  const browsers: Browser[] = []
  for (let count = 0; count < 3; count += 1) {
    const browser = one.browser()
    t.equal((await signIn(browser, sandbox)).status, 303)
    browsers.push(browser)
  }
  t.match(await run('count'), { code: 0, lines: ['3'], stderr: '' })
  const listed = await run('list')
  t.equal(listed.lines.length, 3)
  for (const line of listed.lines)
    t.match(line, /^[0-9a-f]{64}( {2}\d{4}-\d\d-\d\dT\S+Z){3} {2}code {2}1 {2}test-client {2}unbound$/)
  const [id, ...more] = listed.lines.map((line) => line.slice(0, 64))

  /** Calls by both replicas, which know the sessions by the first round. */
  const statuses = async (): Promise<number[]> =>
    await Promise.all(browsers.flatMap((browser) => [browser, through(other, browser)]).map(statusOf))
  t.strictSame(new Set(await statuses()), new Set([200]))
  const unknown = ['0', '1'].map((digit) => digit.repeat(64)).find((text) => text !== id)!
  t.match(await run('end', unknown), { code: 1, lines: [], stderr: /There is no session with the id/ })
  const ended = await run('end', id!.slice(0, 12))
  t.match(ended, { code: 0, lines: [`ended ${id}`] })
  const audit = { level: 'info', event: 'session.ended', reason: 'operator', recordKey: id!.slice(0, 12) }
  t.match(JSON.parse(ended.stderr), audit, 'the one line on stderr')
  t.strictSame((await statuses()).sort(), [200, 200, 200, 200, 401, 401], 'one session, at both replicas')
  t.equal(sandbox.journal.entries({ endpoint: 'revoke' }).length, 2, 'its two tokens are revoked')

  const all = await run('end-all', '--yes')
  t.match(all, { code: 0, lines: ['ended 2'] })
  const [named, ...audits] = all.stderr.trim().split('\n')
  t.equal(named, `end-all signs out every user of Redis at 127.0.0.1:${redis.port}, database 0, prefix bff:`)
  t.strictSame(
    audits
      // A run of more than a second says how far it is.
      .filter((line) => !line.endsWith('so far'))
      .map((line) => (JSON.parse(line) as { recordKey: string }).recordKey)
      .sort(),
    more.map((one) => one.slice(0, 12)).sort(),
  )
  t.strictSame(new Set(await statuses()), new Set([401]))
  t.equal(sandbox.journal.entries({ endpoint: 'revoke' }).length, 6)

  const text = printed.join('\n')
  const tokens = sandbox.journal
    .entries({ endpoint: 'resource' })
    .map(({ headers }) => headers.authorization!.slice(7))
  t.ok(tokens.length > 0)
  for (const token of tokens) t.notOk(text.includes(token), 'no token is printed')
  for (const browser of browsers) {
    for (const { value } of browser.cookies.values()) t.notOk(text.includes(value), 'no cookie is printed')
  }

  // Members below 0 keep the clock of the queue.
  t.equal(await redis.cli('zcount', 'bff:due', '0', '+inf'), '0', 'nothing is left in the due queue')
})

t.test('explain says in sentences, or as JSON, what the record of a session shows', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url })
  await untilReady(bff)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const operator = { REDIS_URL: redis.url, SESSION_SECRET, ...platformEnv(sandbox) }
  const shown = (await browser.fetch('/auth/session')).json()
  const id = String(shown.sessionId)
  const told = await sessions(t, operator, 'explain', id)
  t.match(told, { code: 0, stderr: '' })
  const text = told.lines.join('\n')
  t.match(text, `Session ${id} began at ${shown.createdAt}, by the flow code`)
  t.match(text, /The platform did not say whose it is/)
  t.match(text, `in any case at ${shown.expiresAt}.`)
  t.match(text, /not refreshed yet/)

  sandbox.faults.set({ tokenEndpoint: { mode: 'drop' } })
  sandbox.expireAccessTokens()
  t.equal((await browser.fetch('/flux/temperature')).status, 503)
  const doubted = await sessions(t, operator, 'explain', id, '--json')
  t.match(JSON.parse(doubted.lines[0]!), {
    user: null,
    readable: true,
    refreshable: true,
    refreshes: 0,
    doubts: 1,
    passedLimit: null,
    accessTokenExpiresAt: shown.accessTokenExpiresAt,
  })
  t.match(
    (await sessions(t, operator, 'explain', id)).lines.join('\n'),
    /newest try to refresh failed[\s\S]*presented once without an answer that says/,
  )
  const others = ['0'.repeat(64), '1'.repeat(64)].find((other) => !other.startsWith(id[0]!))!
  t.match(await sessions(t, operator, 'explain', others), { code: 1, lines: [], stderr: /no session/ })
  t.match(await sessions(t, operator, 'explain', others.slice(0, 3)), {
    stderr: new RegExp(`a "recordKey" that begins with ${others.slice(0, 3)} `),
  })
  t.equal((await sessions(t, operator, 'explain')).code, 2)
  sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })
  t.match(await sessions(t, operator, 'end', id), { code: 0 })
  const ended = await sessions(t, operator, 'explain', id)
  t.match(ended, { code: 0, stderr: '' }, 'for an hour after its end')
  t.match(ended.lines.join('\n'), new RegExp(`^Session ${id} ended at .*Z: npm run sessions ended it`))
  t.match(ended.lines.join('\n'), `session.ended when and why it ended`)
  const [line = '{}'] = (await sessions(t, operator, 'explain', id, '--json')).lines
  t.match(JSON.parse(line), { id: new RegExp(`^${id}`), ended: { reason: 'operator', at: /Z$/ } })
  await redis.cli('del', (await redis.cli('keys', 'bff:e:*')).trim())
  const forgotten = await sessions(t, operator, 'explain', id)
  t.match(forgotten, { code: 1, lines: [], stderr: new RegExp(`recordKey":"${id}".*session\\.ended`) })
  const tokens = sandbox.journal.entries({ endpoint: 'resource' }).map(({ headers }) => headers.authorization)
  for (const token of tokens) t.notOk(text.includes(String(token).slice(7)))
})

t.test('tokens that cannot be revoked are counted, and their sessions end', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url })
  await untilReady(bff)
  for (let count = 0; count < 3; count += 1) await signIn(bff.browser(), sandbox)
  const env = {
    REDIS_URL: redis.url,
    SESSION_SECRET,
    OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke`,
    ...platformEnv(sandbox),
  }
  sandbox.faults.set({ revocation: 'absent' })
  const [id, another] = (await redis.cli('keys', 'bff:s:*')).split('\n').map((key) => key.slice(-64))
  const unasked = await sessions(t, env, 'end', id!, '--no-revoke')
  t.match(unasked, { code: 0 })
  t.notMatch(unasked.stderr, /revoked/)
  const stranger = { ...env, SESSION_SECRET: 'a-secret-that-sealed-nothing-of-32-characters' }
  t.match(await sessions(t, stranger, 'end', another!), {
    code: 0,
    stderr: /^1 tokens could not be revoked/m,
  })
  t.match(await sessions(t, env, 'end-all', '--yes'), {
    code: 0,
    lines: ['ended 1'],
    stderr: /^2 tokens could not be revoked/m,
  })
})

t.test('a revocation without a definite answer is tried again before the command ends', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url })
  await untilReady(bff)
  await signIn(bff.browser(), sandbox)
  const revocation = { OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke` }
  sandbox.faults.set({ revocationEndpoint: { mode: 'status', status: 503, times: 3 } })
  const env = { REDIS_URL: redis.url, SESSION_SECRET, ...revocation, ...platformEnv(sandbox) }
  const ended = await sessions(t, env, 'end-all', '--yes')
  t.match(ended, { code: 0, lines: ['ended 1'] })
  t.notMatch(ended.stderr, 'could not be revoked')
  const asked = sandbox.journal.entries({ endpoint: 'revoke' })
  t.equal(asked.length, 5, 'both tokens, both again, and the one that failed once more')
})

t.test('a failure has an exit code and a sentence without secrets', async (t) => {
  const redis = await startRedis(t, { password: 'the-right-password' })
  const wrong = redis.url.replace('the-right-password', 'a-wrong-password')
  const nowhere = { REDIS_URL: 'redis://:a-wrong-password@127.0.0.1:9/3', REDIS_PREFIX: 'shop:' }
  const named = 'end-all signs out every user of Redis at 127.0.0.1:9, database 3, prefix shop:\n'
  const cases: [env: Record<string, string>, line: string, code: number, stderr: RegExp][] = [
    [{ REDIS_URL: wrong }, 'count', 1, /^Redis refused the credentials/],
    [
      { ...nowhere, SESSION_SECRET },
      'end-all --yes',
      1,
      new RegExp(`^${named}Redis cannot be reached \\(.*ECONNREFUSED`),
    ],
    [{ ...nowhere, SESSION_SECRET }, 'end-all', 2, new RegExp(`^${named}To confirm, add --yes\\.\n$`)],
    [{ ...nowhere, SESSION_SECRET: 'short-a-secret' }, 'reseal', 2, /SESSION_SECRET needs at least 32/],
    [
      { REDIS_URL: '' },
      'count',
      2,
      /^ {2}npm does not read \.env: use node --env-file=\.env dist\/sessions\.js/m,
    ],
    [{}, 'destroy', 2, /There is no command "destroy"/],
  ]
  const runs = cases.map(async ([env, line, code, stderr]) => {
    const ran = await sessions(t, env, ...line.split(' '))
    t.match(ran, { code, lines: [], stderr }, line)
    t.notMatch(ran.stderr, /a-wrong-password|short-a-secret/)
  })
  await Promise.all(runs)
})

t.test('closing the output of a long list early is no failure', async (t) => {
  const redis = await startRedis(t)
  await redis.cli(
    'eval',
    `for i = 1, 5000 do
      local key = 'bff:s:' .. redis.sha1hex(i) .. string.sub(redis.sha1hex(i), 1, 24)
      redis.call('SET', key, '{"g":1,"e":9000000000000,"i":"app"}\\nx')
    end`,
    '0',
  )
  const command = `"${process.execPath}" dist/sessions.js list | head -n 2; echo "code \${PIPESTATUS[0]}"`
  const child = startChild(t, 'bash', ['-c', command], {
    env: { PATH: process.env.PATH ?? '', REDIS_URL: redis.url },
  })
  await child.ended
  t.match(child.stdout().split('\n'), [/^[0-9a-f]{64} /, /^[0-9a-f]{64} /, 'code 0', ''])
  t.match(child.stderr(), /^id {2}sign-in .*\n$/, 'the columns alone')
})
