import t from 'tap'
import { LACKS_FRONTS, withEachFront } from '../helpers/fronts.ts'
import { passesOn, startProxied } from '../helpers/proxied.ts'

t.test('two replicas behind the files of deploy/', { skip: LACKS_FRONTS }, async (t) => {
  const system = await startProxied(t, [1, 2], ['nginx', 'haproxy'])
  const passes = "passes on a sign-in, calls, streams and the client's address"
  await withEachFront(t, system.fronts, passes, (t, front) => passesOn(t, system, front))
})
