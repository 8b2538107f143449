import t from 'tap'
import type { Browser } from '../helpers/browser.ts'
import { startChild } from '../helpers/child.ts'
import { startRedis } from '../helpers/redis.ts'
import { through } from '../helpers/replicas.ts'
import { type Bff, platformEnv, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { sessions } from './run.ts'

const SECRET = 'the-first-secret-of-the-tests-of-32-characters'

async function statusOf(browser: Browser): Promise<number> {
  return (await browser.fetch('/flux/temperature')).status
}

t.test('an operator lists the sessions of a running deployment and ends them on every replica', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const revocation = `${sandbox.authUrl}/oauth/revoke`
  const env = { REDIS_URL: redis.url, OAUTH_REVOCATION_URL: revocation, SESSION_CACHE_MS: '0' }
  const replicas: Bff[] = [await startBff(t, sandbox, env), await startBff(t, sandbox, env)]
  await Promise.all(replicas.map(untilReady))
  const [one, other] = replicas as [Bff, Bff]
  const operator = {
    REDIS_URL: redis.url,
    SESSION_SECRET: SECRET,
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
  for (let count = 0; count < 5; count += 1) {
    const browser = one.browser()
    t.equal((await signIn(browser, sandbox)).status, 303)
    browsers.push(browser)
  }
  t.match(await run('count'), { code: 0, lines: ['5'], stderr: '' })
  const listed = await run('list')
  t.equal(listed.lines.length, 5)
  for (const line of listed.lines)
    t.match(line, /^[0-9a-f]{64}( {2}\d{4}-\d\d-\d\dT\S+Z){3} {2}code {2}1 {2}test-client$/)
  const json = (await run('list', '--json')).lines.map((line) => JSON.parse(line) as { id: string })
  t.strictSame(json.map(({ id }) => id).sort(), listed.lines.map((line) => line.slice(0, 64)).sort())

  // Both replicas know them before they are ended.
  for (const browser of browsers) {
    t.equal(await statusOf(browser), 200)
    t.equal(await statusOf(through(other, browser)), 200)
  }
  const unknown = ['0', '1']
    .map((digit) => digit.repeat(64))
    .find((id) => json.every((one) => one.id !== id))!
  t.match(await run('end', unknown), { code: 1, lines: [], stderr: /There is no session with the id/ })
  t.match(await run('end', ''), { code: 2 })
  t.equal(await statusOf(browsers[0]!), 200)
  const { id } = json[0]!
  const beginning = id.slice(0, 12)
  const ended = await run('end', beginning)
  t.match(ended, { code: 0, lines: [`ended ${id}`] })
  const audit = { level: 'info', event: 'session.ended', reason: 'operator', recordKey: beginning }
  t.match(JSON.parse(ended.stderr), audit, 'the one line on stderr')
  const statuses = await Promise.all(
    browsers.map(async (browser) => [await statusOf(browser), await statusOf(through(other, browser))]),
  )
  t.equal(statuses.flat().filter((status) => status === 401).length, 2, 'one session, at both replicas')
  t.equal(sandbox.journal.entries({ endpoint: 'revoke' }).length, 2, 'its two tokens are revoked')
  t.match(await run('end', beginning), { code: 1, stderr: /no session whose id begins/ })

  t.match(await run('end-all'), { code: 2, lines: [], stderr: /add --yes/ })
  t.match(await run('count'), { lines: ['4'] })
  const all = await run('end-all', '--yes')
  t.match(all, { code: 0, lines: ['ended 4'] })
  const [, ...endedLines] = all.stderr.trim().split('\n')
  const audits = endedLines.map((line) => JSON.parse(line) as Record<string, string>)
  t.strictSame(
    audits.map(({ event, reason, recordKey }) => [event, reason, recordKey]).sort(),
    json
      .slice(1)
      .map((one) => ['session.ended', 'operator', one.id.slice(0, 12)])
      .sort(),
  )
  for (const browser of browsers) {
    t.equal(await statusOf(browser), 401)
    t.equal(await statusOf(through(other, browser)), 401)
  }
  t.equal(sandbox.journal.entries({ endpoint: 'revoke' }).length, 10)
  t.match(await run('count', '--json'), { lines: ['{"sessions":0}'] })

  const text = printed.join('\n')
  const tokens = sandbox.journal
    .entries({ endpoint: 'resource' })
    .map(({ headers }) => headers.authorization!.slice(7))
  t.ok(tokens.length > 0)
  for (const token of tokens) t.notOk(text.includes(token), 'no token is printed')
  for (const browser of browsers) {
    for (const { value } of browser.cookies.values()) t.notOk(text.includes(value), 'no cookie is printed')
  }
})

t.test('with SESSION_CACHE_MS=0 a session that an operator ends is refused at the next call', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url, SESSION_CACHE_MS: '0' })
  await untilReady(bff)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  t.equal(await statusOf(browser), 200)
  t.match(await sessions(t, { REDIS_URL: redis.url, SESSION_SECRET: SECRET }, 'end-all', '--yes'), {
    code: 0,
  })
  t.equal(await statusOf(browser), 401)
})

t.test('tokens that cannot be revoked are counted, and their sessions end', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url })
  await untilReady(bff)
  for (let count = 0; count < 4; count += 1) await signIn(bff.browser(), sandbox)
  const env = {
    REDIS_URL: redis.url,
    SESSION_SECRET: SECRET,
    OAUTH_REVOCATION_URL: 'http://127.0.0.1:9/revoke',
    ...platformEnv(sandbox),
  }
  const [id, another] = (await sessions(t, env, 'list')).lines.map((line) => line.slice(0, 64))
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
    lines: ['ended 2'],
    stderr: /^4 tokens could not be revoked/m,
  })
})

t.test('a failure has an exit code and a sentence without secrets', async (t) => {
  const redis = await startRedis(t, { password: 'the-right-password' })
  const right = redis.url
  const wrong = right.replace('the-right-password', 'a-wrong-password')
  t.match(await sessions(t, { REDIS_URL: right }, 'count'), { code: 0, lines: ['0'], stderr: '' })
  const refused = await sessions(t, { REDIS_URL: wrong }, 'count')
  t.match(refused, { code: 1, lines: [], stderr: /^Redis refused the credentials/ })
  t.notMatch(refused.stderr, 'a-wrong-password')
  t.match(await sessions(t, { REDIS_URL: 'redis://127.0.0.1:9' }, 'count'), {
    code: 1,
    stderr: /^Redis cannot be reached \(.*ECONNREFUSED/,
  })
  const faulty = await sessions(t, { REDIS_URL: right, SESSION_SECRET: 'too-short-a-secret' }, 'reseal')
  t.match(faulty, { code: 2, lines: [], stderr: /SESSION_SECRET needs at least 32/ })
  t.notMatch(faulty.stderr, 'too-short-a-secret')
  t.match(await sessions(t, {}, 'list'), { code: 2, stderr: /REDIS_URL is required/ })
  t.match(await sessions(t, {}, 'destroy'), { code: 2, stderr: /There is no command "destroy"/ })
  const help = await sessions(t, {}, '--help')
  t.match(help, { code: 0, stderr: '' })
  t.match(help.lines.join('\n'), /end-all --yes/)
})

t.test('end-all names Redis and the prefix, and no credentials, before it asks or acts', async (t) => {
  const password = 'the-right-password'
  const redis = await startRedis(t, { password })
  const env = { REDIS_URL: `${redis.url}/3`, REDIS_PREFIX: 'shop:', SESSION_SECRET: SECRET }
  const named = `end-all signs out every user of Redis at 127.0.0.1:${redis.port}, database 3, prefix shop:\n`
  const asked = await sessions(t, env, 'end-all')
  t.strictSame(asked, { code: 2, lines: [], stderr: `${named}To confirm, add --yes.\n` })
  const done = await sessions(t, env, 'end-all', '--yes')
  t.strictSame(done, { code: 0, lines: ['ended 0'], stderr: named })
  await redis.stop()
  const failed = await sessions(t, env, 'end-all', '--yes')
  t.equal(failed.code, 1)
  t.ok(failed.stderr.startsWith(named), 'before it connects')
  const others = {
    'redis-sentinel://user:the-word@one,two:26380/shop/2':
      'Redis behind Sentinel at one:26379, two:26380, master shop, database 2, ',
    'rediss-cluster://user:the-word@[::1]:7000,two': 'Redis Cluster at [::1]:7000, two:6379, ',
  }
  for (const [url, text] of Object.entries(others)) {
    const { stderr } = await sessions(t, { ...env, REDIS_URL: url }, 'end-all')
    t.match(stderr, text)
    t.notMatch(stderr, 'the-word')
  }
})

t.test('closing the output of a long list early is no failure', async (t) => {
  const redis = await startRedis(t)
  await redis.cli(
    'eval',
    `for i = 1, 5000 do
      local key = 'bff:s:' .. redis.sha1hex(i) .. string.sub(redis.sha1hex(i), 1, 24)
      redis.call('HSET', key, 'session', '{}', 'tokens', 'x', 'gen', 1, 'createdAt', 0, 'seenAt', 0, 'endsAt', 9e12,
        'flow', 'code', 'client', 'app')
    end`,
    '0',
  )
  const command = `"${process.execPath}" dist/sessions.js list | head -n 2; echo "code \${PIPESTATUS[0]}"`
  const child = startChild(t, 'bash', ['-c', command], {
    env: { PATH: process.env.PATH ?? '', REDIS_URL: redis.url },
  })
  await child.ended
  t.match(child.stdout().split('\n'), [/^[0-9a-f]{64} /, /^[0-9a-f]{64} /, 'code 0', ''])
  t.equal(child.stderr(), '')
  t.match(await sessions(t, { REDIS_URL: redis.url }, 'count'), { lines: ['5000'] })
})
