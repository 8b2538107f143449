import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Answers } from './answers.ts'
import { type AuthorizeEndpoint, SIGN_IN_PATH } from './authorize-endpoint.ts'
import { textOf } from './bodies.ts'
import { type Journal, queryOf } from './journal.ts'
import type { Pipeline } from './pipeline.ts'
import type { Profile } from './profile.ts'
import { type SandboxResponse, send } from './response.ts'
import type { TokenEndpoint } from './token-endpoint.ts'

/** The paths of document section 4.1, and that of token revocation (RFC 7009), which the document lacks. */
const DOCUMENTED = { base: '', authorize: '/oauth/authorize', token: '/oauth/token', revoke: '/oauth/revoke' }

/** The routes of an authorization server: those of the document, or of the profile. */
export function registerAuthorizationServer(
  app: FastifyInstance,
  {
    authorize,
    tokens,
    answers,
    profile,
    journal,
    pipeline,
  }: {
    authorize: AuthorizeEndpoint
    tokens: TokenEndpoint
    answers: Answers
    profile: Profile | null
    journal: Journal
    pipeline: Pipeline
  },
): void {
  const paths = profile?.paths ?? DOCUMENTED
  if (profile?.sendsDate === false)
    app.addHook('onRequest', async (_request, reply) => {
      reply.raw.sendDate = false
    })

  function page(respond: (request: FastifyRequest, form: URLSearchParams) => SandboxResponse) {
    return (request: FastifyRequest, reply: Parameters<typeof send>[0]) => {
      const form = new URLSearchParams(textOf(request.body))
      const sent = request.method === 'POST' ? { form } : {}
      const entry = journal.recordArrival(request, { endpoint: 'authorize', kind: null, ...sent })
      const response = respond(request, form)
      entry.username = response.username ?? null
      journal.recordOutcome(entry, response.outcome)
      send(reply, response)
      journal.recordStatus(entry, response.status)
    }
  }

  const decide = page((request, form) => authorize.decide(queryOf(request), form))
  app.get(
    paths.authorize,
    { exposeHeadRoute: false },
    page((request) => authorize.show(queryOf(request))),
  )
  app.post(paths.authorize, decide)
  if (profile?.signIn.redirects) {
    const url = `${paths.base}${SIGN_IN_PATH}`
    app.get(
      url,
      { exposeHeadRoute: false },
      page((request) => authorize.showSignIn(queryOf(request))),
    )
    app.post(url, decide)
  }
  if (profile?.paths.endSession !== undefined)
    app.get(
      profile.paths.endSession,
      { exposeHeadRoute: false },
      page((request) => authorize.endSession(queryOf(request))),
    )
  for (const path of Object.keys(profile?.pages ?? {}))
    app.get(
      path,
      page(() => answers.page(path)!),
    )
  // Django redirects an address that lacks its slash.
  for (const path of [paths.authorize, paths.token, paths.revoke ?? ''])
    if (path.endsWith('/'))
      app.all(path.slice(0, -1), async (request, reply) => {
        const entry = journal.recordArrival(request, { endpoint: 'unknown', kind: null })
        journal.recordOutcome(entry, 'without_slash')
        const query = queryOf(request).size === 0 ? '' : `?${queryOf(request)}`
        return reply.redirect(`${path}${query}`, 301)
      })

  app.post(paths.token, async (request, reply) => {
    const form = new URLSearchParams(textOf(request.body))
    const entry = journal.recordArrival(request, { endpoint: 'token', kind: form.get('grant_type'), form })
    await pipeline.handle({
      endpoint: 'token',
      entry,
      reply,
      work: () => tokens.token(form, request.headers),
    })
  })

  if (paths.revoke === null) return
  app.post(paths.revoke, async (request, reply) => {
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
