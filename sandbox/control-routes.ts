import { isIP } from 'node:net'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Authorizations, End } from './authorizations.ts'
import { faultsSchema, holdSchema, releaseSchema, revokeSchema, scenarioSchema } from './control-schemas.ts'
import type { Endpoint, FaultSwitches, Faults } from './faults.ts'
import type { GateOptions, Gates } from './gates.ts'
import { PAGE_HEADERS, page } from './html.ts'
import type { EntryFilter, Journal } from './journal.ts'
import type { Scenarios } from './scenarios.ts'
import { stageOf } from './stage.ts'

/**
 * `/_sandbox/…`: the switches, gates and journal over HTTP, for tests and visitors outside of the
 * process. It exposes every token, so a sandbox must not be reachable from an open network.
 */
export function registerControlRoutes(
  app: FastifyInstance,
  {
    faults,
    gates,
    journal,
    authorizations,
    scenarios,
    counters,
    reset,
  }: {
    faults: FaultSwitches
    gates: Gates
    journal: Journal
    authorizations: Authorizations
    scenarios: Scenarios
    counters: () => Record<string, number>
    reset: () => void
  },
): void {
  // Another web page in the visitor's browser must not be able to change the switches.
  app.addHook('onRequest', async (request, reply) => {
    const site = request.headers['sec-fetch-site'] ?? 'none'
    const foreign = (site !== 'none' && site !== 'same-origin') || !isLocalName(request.hostname)
    if (foreign || (request.method !== 'GET' && request.headers.origin !== undefined && site === 'none')) {
      await reply.code(403).send({ error: 'cross_origin' })
    }
  })

  app.get('/_sandbox/faults', async () => faults.current())

  app.post<{ Body: Partial<Faults> }>(
    '/_sandbox/faults',
    { schema: { body: faultsSchema } },
    async (request) => {
      faults.set(request.body)
      return faults.current()
    },
  )

  app.post('/_sandbox/reset', async () => {
    reset()
    return faults.current()
  })

  app.get('/_sandbox/journal', async (request) => journal.entries(filterOf(request)))

  app.get('/_sandbox/counters', async () => counters())

  app.post<{ Body: GateOptions & { endpoint: Endpoint } }>(
    '/_sandbox/hold',
    { schema: { body: holdSchema } },
    async ({ body: { endpoint, ...options } }) => ({ id: gates.hold(endpoint, options).id }),
  )

  app.get('/_sandbox/gates', async () => gates.list())

  app.get<{ Params: { id: string }; Querystring: { count?: string } }>(
    '/_sandbox/gates/:id/arrived',
    async (request, reply) => {
      const gate = gates.find(Number(request.params.id))
      if (gate === null) return reply.code(404).send({ error: 'not_found' })
      await gate.arrivals(Number(request.query.count ?? 1))
      return { waiting: gate.waiting() }
    },
  )

  app.post<{ Body: { id?: number } | null }>(
    '/_sandbox/release',
    { schema: { body: releaseSchema } },
    async (request) => {
      const id = request.body?.id
      if (id === undefined) gates.releaseAll()
      else gates.find(id)?.release()
      return { gates: gates.list() }
    },
  )

  app.post<{ Body: { username?: string; reason?: End } | null }>(
    '/_sandbox/revoke',
    { schema: { body: revokeSchema } },
    async ({ body }) => ({ revoked: authorizations.end(body?.reason ?? 'withdrawn', body?.username) }),
  )

  // The two routes for the demo page: no token in the one, nothing but these names in the other.
  app.get<{ Querystring: { session?: string } }>('/_sandbox/stage.json', async ({ query }, reply) => {
    reply.header('cache-control', 'no-store')
    return { connected: true, ...stageOf(query.session ?? '', journal, authorizations) }
  })

  app.post<{
    Params: { name: string }
    Querystring: { seconds?: string }
  }>(
    '/_sandbox/scenario/:name',
    { schema: { querystring: scenarioSchema } },
    async ({ params, query }, reply) => {
      if (scenarios.begin(params.name, Number(query.seconds ?? Number.POSITIVE_INFINITY) * 1_000))
        return reply.code(204).send()
      return reply.code(404).send({ error: 'not_found' })
    },
  )

  app.get('/', async (_request, reply) => reply.headers(PAGE_HEADERS).send(page('Sandbox platform', START)))

  app.post('/_sandbox/expire', async () => {
    authorizations.expireAccessTokens()
    return {}
  })
}

const START = `<h1>The sandbox platform is running</h1>
<p>It imitates the data platform for the demo and for tests. People come here only to sign in, from the application.</p>
<ul>
<li><a href="/_sandbox/journal">The requests that came</a>, with every token in plain text</li>
<li><a href="/_sandbox/counters">Their counters</a></li>
<li><a href="/_sandbox/faults">The faults that it can play</a></li>
</ul>
<p class="soft">docs/sandbox.md describes all of it.</p>`

/** Whether no public name server can make a name of its own lead here (DNS rebinding): an address, or a local name. */
function isLocalName(hostname: string): boolean {
  return !hostname.includes('.') || hostname.endsWith('.localhost') || isIP(hostname) !== 0
}

const FILTERS = ['endpoint', 'kind', 'method', 'path', 'outcome', 'fault', 'username'] as const

function filterOf(request: FastifyRequest): EntryFilter {
  const query = request.query as Record<string, unknown>
  const wanted = FILTERS.filter((name) => typeof query[name] === 'string')
  return Object.fromEntries(wanted.map((name) => [name, query[name]]))
}
