import type { FastifyInstance } from 'fastify'
import type { AuthorizeEndpoint } from './authorize-endpoint.ts'
import { textOf } from './bodies.ts'
import { type Journal, queryOf } from './journal.ts'
import type { Pipeline } from './pipeline.ts'
import { send } from './response.ts'
import type { TokenEndpoint } from './token-endpoint.ts'

/** The routes of document section 4.1, and token revocation (RFC 7009), which the document lacks. */
export function registerAuthorizationServer(
  app: FastifyInstance,
  {
    authorize,
    tokens,
    journal,
    pipeline,
  }: {
    authorize: AuthorizeEndpoint
    tokens: TokenEndpoint
    journal: Journal
    pipeline: Pipeline
  },
): void {
  app.get('/oauth/authorize', { exposeHeadRoute: false }, (request, reply) => {
    const entry = journal.recordArrival(request, { endpoint: 'authorize', kind: null })
    const response = authorize.show(queryOf(request))
    journal.recordOutcome(entry, response.outcome)
    send(reply, response)
    journal.recordStatus(entry, response.status)
  })

  app.post('/oauth/authorize', (request, reply) => {
    const form = new URLSearchParams(textOf(request.body))
    const entry = journal.recordArrival(request, { endpoint: 'authorize', kind: null, form })
    const response = authorize.decide(queryOf(request), form)
    entry.username = response.username ?? null
    journal.recordOutcome(entry, response.outcome)
    send(reply, response)
    journal.recordStatus(entry, response.status)
  })

  app.post('/oauth/token', async (request, reply) => {
    const form = new URLSearchParams(textOf(request.body))
    const entry = journal.recordArrival(request, { endpoint: 'token', kind: form.get('grant_type'), form })
    await pipeline.handle({
      endpoint: 'token',
      entry,
      reply,
      work: () => tokens.token(form, request.headers),
    })
  })

  app.post('/oauth/revoke', async (request, reply) => {
    const form = new URLSearchParams(textOf(request.body))
    const entry = journal.recordArrival(request, { endpoint: 'revoke', kind: null, form })
    await pipeline.handle({
      endpoint: 'revoke',
      entry,
      reply,
      work: () => tokens.revoke(form, request.headers),
    })
  })
}
