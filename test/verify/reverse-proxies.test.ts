import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { get } from 'node:https'
import t, { type Test } from 'tap'
import { FRONTS, LACKS_FRONTS, running, withEachFront } from '../helpers/fronts.ts'
import { askPlain, NAME, type Proxied, passesOn, restartOneByOne, startProxied } from '../helpers/proxied.ts'
import { until } from '../helpers/wait.ts'

t.test('behind the reverse proxies of deploy/', { skip: LACKS_FRONTS }, async (t) => {
  const system = await startProxied(t, [1, 2, 3], FRONTS)
  const passes = "passes on a sign-in, calls, streams and the client's address"
  await withEachFront(t, system.fronts, passes, (t, front) => passesOn(t, system, front))
  await t.test('three replicas restart one by one under load, and no request fails', (t) =>
    restartOneByOne(t, system, running(system.fronts)),
  )
  t.equal(await system.replicas.pop()?.stop('SIGTERM'), 0)
  await t.test('so do two, where the second stops as soon as the first is ready', (t) =>
    restartOneByOne(
      t,
      system,
      running(system.fronts).filter(({ name }) => name !== 'caddy'),
    ),
  )
  const caddy = system.fronts.get('caddy') ?? null
  const skip = caddy === null && 'caddy is not installed'
  // While Caddy 2.6 knows of none that is ready, it responds to an update with 503.
  await t.test('and as soon as Caddy knows that the first is ready', { skip }, async (t) => {
    const timesUp = (host: string) => caddy!.output().match(new RegExp(`"host is up","host":"${host}:`, 'g'))
    const before = new Map(['127.0.0.11', '127.0.0.12'].map((host) => [host, timesUp(host)?.length ?? 0]))
    await restartOneByOne(t, system, [caddy!], (host) =>
      until('Caddy knows it', () => (timesUp(host)?.length ?? 0) > before.get(host)!),
    )
  })
  await t.test('no log has the code of a callback while no replica runs', (t) => failsAll(t, system))
})

async function failsAll(t: Test, { ca, replicas, fronts }: Proxied): Promise<void> {
  for (const replica of replicas) t.equal(await replica.stop('SIGTERM'), 0)
  const path = '/auth/callback/a-nonce?code=PLANTED'
  for (const front of running(fronts)) {
    t.equal((await askPlain(front, path)).statusCode, 308)
    const options = { host: '127.0.0.1', port: front.httpsPort, servername: NAME, ca, agent: false }
    const [answer] = (await once(get({ ...options, path, headers: { host: NAME } }), 'response')) as [
      IncomingMessage,
    ]
    answer.resume()
    t.ok([502, 503].includes(answer.statusCode ?? 0), `${front.name} responds ${answer.statusCode}`)
    t.notMatch(front.output(), 'PLANTED', front.name)
  }
}
