import t from 'tap'
import { parseOperatorConfig } from '../../operator/config.ts'
import { BASE, OTHER_SECRET, revealed, SESSION_SECRET } from '../config/environment.ts'

const NOTHING = { secrets: false, revocation: false }
const ALL = { secrets: true, revocation: true }
const REDIS = { REDIS_URL: 'rediss://user:word@redis:6380/2', REDIS_PREFIX: 'app:' }

t.test('a command reads the variables it needs and no others', async (t) => {
  const counting = parseOperatorConfig({ ...REDIS, SESSION_SECRET: 'short', CLIENT_ID: '' }, NOTHING)
  if (!counting.ok) throw new Error(counting.faults.join('\n'))
  t.match(counting.config, { store: { kind: 'redis', prefix: 'app:' }, idleSeconds: 7_200, platform: null })
  t.strictSame(counting.config.sessionSecrets, [])

  const env = { ...REDIS, SESSION_SECRET: `${SESSION_SECRET},${OTHER_SECRET}` }
  const ending = parseOperatorConfig(env, ALL)
  if (!ending.ok) throw new Error(ending.faults.join('\n'))
  t.strictSame(revealed(ending.config.sessionSecrets), [SESSION_SECRET, OTHER_SECRET])
  t.equal(ending.config.platform, null, 'the client is not needed where nothing can be revoked')

  const revocation = { ...BASE, ...env, OAUTH_REVOCATION_URL: 'https://auth.example.com/revoke' }
  const revoking = parseOperatorConfig(revocation, ALL)
  if (!revoking.ok) throw new Error(revoking.faults.join('\n'))
  t.match(revoking.config.platform?.oauth, {
    revocationUrl: 'https://auth.example.com/revoke',
    clientId: 'client-1',
  })
  t.match(parseOperatorConfig(revocation, { ...ALL, revocation: false }), { config: { platform: null } })
})

t.test('a command for the sessions of a user reads whether the platform is asked who signs in', async (t) => {
  const operations = { GetMe: { method: 'GET', path: '/{wac}/User/me' } }
  const folder = t.testdir({
    'with.json': JSON.stringify({ operations, identity: { operation: 'GetMe', id: '/id' } }),
    'without.json': JSON.stringify({ operations }),
  })
  const read = (file: string | null, users = true) => {
    const env = { ...REDIS, WAC: 'DEMO', ...(file === null ? {} : { OPERATIONS_FILE: `${folder}/${file}` }) }
    const parsed = parseOperatorConfig(env, { ...NOTHING, users })
    return parsed.ok ? parsed.config.hasIdentity : parsed.faults.length
  }
  t.equal(read('with.json'), true)
  for (const file of ['without.json', null]) t.equal(read(file), false)
  t.equal(read('missing.json'), 1, 'a fault')
  t.equal(read('missing.json', false), false, 'no other command reads it')
})

t.test('a command that explains sessions reads CLIENT_ID where it is set', async (t) => {
  const read = (env: Record<string, string>, client = true) => {
    const parsed = parseOperatorConfig({ ...REDIS, ...env }, { ...NOTHING, client })
    return parsed.ok ? parsed.config.clientId : parsed.faults.length
  }
  t.equal(read({ CLIENT_ID: 'client-1' }), 'client-1')
  t.equal(read({}), null)
  t.equal(read({ CLIENT_ID: 'client-1' }, false), null)
})

t.test('every fault in the needed variables is listed', async (t) => {
  const faultsOf = (env: Record<string, string>, needs = ALL): readonly string[] => {
    const parsed = parseOperatorConfig(env, needs)
    return parsed.ok ? [] : parsed.faults
  }
  const names = (faults: readonly string[]) => faults.map((fault) => fault.split(' ')[0]).sort()
  t.strictSame(names(faultsOf({})), ['REDIS_URL', 'SESSION_SECRET'])
  t.strictSame(names(faultsOf({}, NOTHING)), ['REDIS_URL'])
  t.strictSame(names(faultsOf({ ...REDIS, SESSION_IDLE_SECONDS: 'x' }, NOTHING)), ['SESSION_IDLE_SECONDS'])
  t.strictSame(names(faultsOf({ SESSION_STORE: 'memory' }, NOTHING)), ['SESSION_STORE'])
  t.match(faultsOf({ SESSION_STORE: 'memory' }, NOTHING)[0], /out of reach for a command/)
  const http = 'http://auth.example.com'
  t.strictSame(
    names(faultsOf({ ...REDIS, SESSION_SECRET, AUTH_URL: http, OAUTH_REVOCATION_URL: `${http}/revoke` })),
    ['AUTH_URL', 'BASE_URL', 'CLIENT_ID', 'CLIENT_SECRET', 'OAUTH_REVOCATION_URL'],
  )
})
