import t from 'tap'
import { isProblem } from '../helpers/browser.ts'
import { LACKS_FRONTS, withEachFront } from '../helpers/fronts.ts'
import { passesOn, startProxied } from '../helpers/proxied.ts'
import { until } from '../helpers/wait.ts'

t.test('two replicas behind the files of deploy/', { skip: LACKS_FRONTS }, async (t) => {
  const system = await startProxied(t, [1, 2], ['nginx', 'haproxy'])
  const passes = "passes on a sign-in, calls, streams and the client's address"
  await withEachFront(t, system.fronts, passes, (t, front) => passesOn(t, system, front))

  const { redis, fronts, browserAt } = system
  redis.pause()
  await withEachFront(
    t,
    fronts,
    'passes on what replicas answer of which none is ready',
    async (t, front) => {
      const { name, output } = front
      // It asks every replica, nginx none.
      if (name === 'haproxy')
        await until('it knows', () => /0 active and \d backup servers left/.test(output()))
      isProblem(t, await browserAt(front).fetch('/auth/session'), 503, 'store_unavailable', 'of the server')
    },
  )
  redis.resume()
  await withEachFront(t, fronts, 'uses them again with Redis', async (_, front) => {
    await until('it works', async () => (await browserAt(front).fetch('/auth/session')).status === 200)
  })
})
