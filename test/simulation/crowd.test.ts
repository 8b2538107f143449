import t from 'tap'
import { type CrowdSize, drawSettings, withCrowd } from './settings.ts'
import { simulate } from './simulate.ts'

/** A crowd comes due together, and the token endpoint works through its requests one by one. */
const CROWDS: readonly CrowdSize[] = [
  // As measured with django-oauth-toolkit on one core: with 64 requests at once 35 to 134 of 150 sessions were lost.
  { sessions: 150, replicas: 2, serviceMs: 240 },
  { sessions: 150, replicas: 1, serviceMs: 240 },
  { sessions: 100, replicas: 4, serviceMs: 500 },
  { sessions: 60, replicas: 2, serviceMs: 1_500 },
  { sessions: 150, replicas: 2, serviceMs: 20 },
]

for (const crowd of CROWDS) {
  const { sessions, replicas, serviceMs } = crowd
  t.test(
    `${sessions} sessions due at once on ${replicas} replicas, at ${serviceMs} ms for each request: none is lost, and all are done as soon as the endpoint can`,
    async (t) => {
      const settings = withCrowd({ ...drawSettings(1), timeoutMs: 10_000 }, crowd)
      const { violation, tally } = await simulate(1, { settings })
      t.equal(violation, null)
      t.equal(tally.lost, 0)
      t.equal(tally.lossCauses.size, 0)
      t.ok(tally.presentations >= sessions)
    },
  )
}
