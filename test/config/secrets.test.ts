import { inspect } from 'node:util'
import t from 'tap'
import { configOf, type Env, faultsOf, OTHER_SECRET, revealed } from './environment.ts'

t.test('a secret may be in a file, and one trailing newline is dropped', async (t) => {
  const dir = t.testdir({
    plain: 'from a file\n',
    windows: 'from a file\r\n',
    bare: 'from a file',
    twice: 'from a file\n\n',
    empty: '\n',
    redis: 'redis://file\n',
    session: `${OTHER_SECRET}\n`,
  })
  for (const name of ['plain', 'windows', 'bare']) {
    const config = configOf({ CLIENT_SECRET: '', CLIENT_SECRET_FILE: `${dir}/${name}` })
    t.equal(config.oauth.clientSecret.reveal(), 'from a file', name)
  }
  const config = configOf({
    SESSION_SECRET: undefined,
    SESSION_SECRET_FILE: `${dir}/session`,
    REDIS_URL: undefined,
    REDIS_URL_FILE: `${dir}/redis`,
  })
  t.equal(config.sessionSecrets[0]?.reveal(), OTHER_SECRET)
  t.match(config.store, { target: { address: { host: 'file' } } })
  t.equal(configOf({ CLIENT_SECRET_FILE: '' }).oauth.clientSecret.reveal(), 'client-secret-value')

  const cases: [env: Env, says: RegExp][] = [
    [{ CLIENT_SECRET_FILE: `${dir}/twice` }, /^CLIENT_SECRET must not hold line breaks/],
    [{ CLIENT_SECRET_FILE: `${dir}/empty` }, /^CLIENT_SECRET is empty in the file/],
    [{ CLIENT_SECRET_FILE: dir }, /^CLIENT_SECRET cannot be read .*CLIENT_SECRET_FILE.*\(EISDIR\)$/],
    [{ CLIENT_SECRET_FILE: 'the secret itself' }, /file that CLIENT_SECRET_FILE names \(ENOENT\)$/],
    [{ CLIENT_SECRET: 'x', CLIENT_SECRET_FILE: 'y' }, /twice: as CLIENT_SECRET and as CLIENT_SECRET_FILE$/],
    [
      { CLIENT_SECRET: 'x', https_proxy: 'http://proxy', HTTPS_PROXY_FILE: 'y' },
      /^HTTPS_PROXY is given twice: as https_proxy and as HTTPS_PROXY_FILE$/,
    ],
    // Only secrets may be in files.
    [{ CLIENT_SECRET: 'x', CLIENT_ID: undefined, CLIENT_ID_FILE: `${dir}/plain` }, /^CLIENT_ID is required/],
  ]
  for (const [env, says] of cases) t.match(faultsOf({ CLIENT_SECRET: undefined, ...env }), [says])
})

const marked = 'MARKED'
const long = `${marked}-0123456789-0123456789-0123456789`

t.test('no fault shows a secret', async (t) => {
  const redis = ['/x@redis', '#x@redis', '%zz@redis', `@redis,${marked}`, '@redis:0', `@redis/${marked}`]
  // It also lacks https://.
  const withoutScheme: Env = { BASE_URL: `user:${marked}@api.example.com` }
  const faulty: Env[] = [
    withoutScheme,
    { CLIENT_SECRET: `${marked}\n` },
    { SESSION_SECRET: marked },
    { SESSION_SECRET: `${long},${long}` },
    { SESSION_SECRET_FILE: marked, SESSION_SECRET: undefined },
    { REDIS_SENTINEL_PASSWORD: `${marked}\u0000` },
    { BASE_URL: `https://user:${marked}@api.example.com` },
    { BASE_URL: `https://api.example.com/?key=${marked}` },
    { REDIS_URL: marked },
    { REDIS_URL: `http://:${marked}@redis` },
    ...redis.map((rest) => ({ REDIS_URL: `redis://:${marked}${rest}` })),
    { REDIS_URL: `redis-cluster://:${marked}@redis/${marked}` },
    { REDIS_URL: `redis-sentinel://:${marked}@redis/${marked}/${marked}` },
  ]
  for (const env of faulty) {
    const faults = faultsOf(env)
    t.equal(faults.length, env === withoutScheme ? 2 : 1, Object.keys(env).join())
    t.notMatch(faults.join('\n'), marked)
  }
})

t.test('no secret can be printed from the configuration, which is frozen', async (t) => {
  const config = configOf({
    CLIENT_SECRET: marked,
    SESSION_SECRET: long,
    REDIS_URL: `redis-sentinel://user:${marked}@one,two/main`,
    REDIS_SENTINEL_PASSWORD: marked,
  })
  t.match(JSON.stringify(revealed(config)).match(/MARKED/g), { length: 4 }, 'they are in it')
  t.notMatch(JSON.stringify(config), marked)
  t.notMatch(inspect(config, { depth: null, showHidden: true, getters: true }), marked)
  const assign = (object: object) => Reflect.set(object, 'host', 'x')
  t.notOk([config, config.listen, config.sessionSecrets, config.store].some(assign))
  if (config.store.kind !== 'redis') throw new Error('not redis')
  t.notOk([config.store.target, config.store.target.login].some(assign))
})
