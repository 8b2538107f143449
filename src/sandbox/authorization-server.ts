import type { FastifyInstance } from 'fastify'
import { send } from './answer.ts'
import type { AuthorizeEndpoint } from './authorize-endpoint.ts'
import { textOf } from './bodies.ts'
import { type Journal, queryOf } from './journal.ts'
import type { createStation } from './station.ts'
import type { TokenEndpoint } from './token-endpoint.ts'

/** The routes of document section 4.1, and token revocation (RFC 7009), which the document lacks. */
export function registerAuthorizationServer(
  app: FastifyInstance,
  {
    authorize,
    tokens,
    journal,
    station,
  }: {
    authorize: AuthorizeEndpoint
    tokens: TokenEndpoint
    journal: Journal
    station: ReturnType<typeof createStation>
  },
): void {
  app.get('/oauth/authorize', { exposeHeadRoute: false }, (request, reply) => {
    const entry = journal.arrived(request, { endpoint: 'authorize', kind: null })
    const answer = authorize.show(queryOf(request))
    journal.decided(entry, answer.outcome)
    send(reply, answer)
    journal.answered(entry, answer.status)
  })

  app.post('/oauth/authorize', (request, reply) => {
    const form = new URLSearchParams(textOf(request.body))
    const entry = journal.arrived(request, { endpoint: 'authorize', kind: null, form })
    const answer = authorize.decide(queryOf(request), form)
    entry.username = answer.username ?? null
    journal.decided(entry, answer.outcome)
    send(reply, answer)
    journal.answered(entry, answer.status)
  })

  app.post('/oauth/token', async (request, reply) => {
    const form = new URLSearchParams(textOf(request.body))
    const entry = journal.arrived(request, { endpoint: 'token', kind: form.get('grant_type'), form })
    await station.pass({ station: 'token', entry, reply, work: () => tokens.token(form, request.headers) })
  })

  app.post('/oauth/revoke', async (request, reply) => {
    const form = new URLSearchParams(textOf(request.body))
    const entry = journal.arrived(request, { endpoint: 'revoke', kind: null, form })
    await station.pass({ station: 'revoke', entry, reply, work: () => tokens.revoke(form, request.headers) })
  })
}
