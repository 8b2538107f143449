import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { get } from 'node:https'
import t, { type Test } from 'tap'
import { FRONTS, LACKS_FRONTS, running, withEachFront } from '../helpers/fronts.ts'
import { askPlain, NAME, type Proxied, passesOn, restartOneByOne, startProxied } from '../helpers/proxied.ts'

t.test('behind the reverse proxies of deploy/', { skip: LACKS_FRONTS }, async (t) => {
  const system = await startProxied(t, [1, 2, 3], FRONTS)
  const passes = "passes on a sign-in, calls, streams and the client's address"
  await withEachFront(t, system.fronts, passes, (t, front) => passesOn(t, system, front))
  await t.test('three replicas restart one by one under load, and no request fails', (t) =>
    restartOneByOne(t, system, running(system.fronts)),
  )
  await t.test('so do two, where the second stops as soon as the first is ready', async (t) => {
    t.equal(await system.replicas.pop()?.stop('SIGTERM'), 0)
    await restartOneByOne(t, system, running(system.fronts))
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
