import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { through } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { startProxy } from '../store/proxy.ts'
import { counted } from './load.ts'

t.test('a replica whose subscriber stays on a demoted master serves nothing stale', async (t) => {
  const old = await startRedis(t)
  const promoted = await startRedis(t, { args: ['--replicaof', `127.0.0.1 ${old.port}`] })
  const sandbox = await startSandbox(t)
  const proxies = [await startProxy(t, old.port), await startProxy(t, old.port)] as const
  const urls = proxies.map(({ port }) => `redis://127.0.0.1:${port}`)
  const left = await startBff(t, sandbox, { REDIS_URL: urls[0]! })
  const moved = await startBff(t, sandbox, { REDIS_URL: urls[1]! })
  await Promise.all([left, moved].map(untilReady))
  const browser = left.browser()
  await signIn(browser, sandbox)
  for (let call = 0; call < 2; call += 1) t.equal((await browser.fetch('/flux/temperature')).status, 200)
  t.equal(await counted([left], 'bff_session_cache_total{result="hit"}'), 1, 'it knows the session')
  const name = (await old.cli('keys', 'bff:s:*')).trim()
  await until('the replica has it', async () => (await promoted.cli('exists', name)) === '1')

  // The old master lives on, cut off: it hears of nothing, and answers whoever is still connected to it.
  await promoted.cli('replicaof', 'no', 'one')
  for (const proxy of proxies) proxy.turnTo(promoted.port)
  const before = proxies[0].made()
  proxies[1].cutNamed('bff-')
  await until(
    'the other has moved',
    async () => (await old.cli('client', 'list')).split('name=bff-').length - 1 === 2,
  )
  await untilReady(moved)
  proxies[0].cutNamed('bff-commands')
  await until('it connects again', () => proxies[0].made() > before)
  t.match(await old.cli('client', 'list'), /name=bff-messages/, 'its subscriber has stayed')

  await until('it answers', async () => (await browser.fetch('/flux/temperature')).status === 200)
  t.equal(await counted([left], 'bff_session_cache_total{result="hit"}'), 1, 'past the cache')
  t.equal((await through(moved, browser).fetch('/auth/logout', { method: 'POST' })).status, 204)
  t.equal((await browser.fetch('/flux/temperature')).status, 401)

  await untilReady(left)
  t.notMatch(await old.cli('client', 'list'), /name=bff-/, 'it has left the demoted master')
})
