import type { FastifySchema } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { OpenAPIV3_1 } from 'openapi-types'
import { PROBLEM_CODES } from '../errors.ts'
import { PATHS } from '../paths.ts'
import { VERSION } from '../version.ts'

const PROBLEM = {
  $id: 'Problem',
  type: 'object',
  description: 'RFC 9457',
  required: ['type', 'title', 'status', 'detail', 'code', 'requestId'],
  properties: {
    type: { type: 'string' },
    title: { type: 'string' },
    status: { type: 'integer' },
    detail: { type: 'string' },
    code: { enum: PROBLEM_CODES, description: 'Stable; what a program should look at.' },
    requestId: { type: 'string' },
    loginUrl: { type: 'string', description: 'Where to navigate to sign in.' },
    reason: { $ref: 'EndReason#' },
  },
}

const HEADERS = {
  'X-Request-Id': { type: 'string', description: 'Also in the logs.' },
  'Retry-After': { type: 'integer', minimum: 1, description: 'Seconds to wait before the next try.' },
  Location: { type: 'string', description: 'Where the browser goes next.' },
  'WWW-Authenticate': { type: 'string' },
  ETag: { type: 'string', description: 'Send it back as `If-None-Match`.' },
  'Last-Modified': { type: 'string', description: 'Send it back as `If-Modified-Since`.' },
}

/**
 * Serves `/openapi.json`: the schemas of the routes of all plugins that are registered from now on, as an OpenAPI 3.1
 * document of what browsers may call with this configuration. `sessionCookie` is the name of that cookie.
 */
export const openApi = fastifyPlugin<{ publicUrl: string; sessionCookie: string }>(
  async (server, { publicUrl, sessionCookie }) => {
    // Imported late, so that it is a chunk of its own: in that of the forwarded calls it costs each of them 4 % (Node 20).
    const { default: fastifySwagger } = await import('@fastify/swagger')
    await server.register(fastifySwagger, {
      openapi: {
        openapi: '3.1.0',
        info: {
          title: 'Backend for frontend',
          version: VERSION,
          license: { name: 'MIT', identifier: 'MIT' } as { name: string },
          description:
            'Sign-in, session and calls to the data platform for a single-page app on the same origin. The session cookie is the only credential; no response holds a token.',
        },
        servers: [{ url: publicUrl }],
        security: [{ session: [] }],
        tags: [
          { name: 'session', description: 'Sign-in, session and sign-out.' },
          {
            name: 'platform',
            description: 'Calls to the data platform, forwarded with the access token of the session.',
          },
        ],
        components: { securitySchemes: { session: { type: 'apiKey', in: 'cookie', name: sessionCookie } } },
      },
      convertConstToEnum: false,
      refResolver: { buildLocalReference: ({ $id }) => String($id) },
      transform: ({ schema, url }) => ({ schema: withOtherProblems(schema), url }),
      transformObject: (document) =>
        withHeads((document as { openapiObject: Pick<OpenAPIV3_1.Document, 'paths'> }).openapiObject),
    })
    server.addSchema(PROBLEM)

    let document: string | undefined
    server.route({
      method: ['GET', 'HEAD'],
      url: PATHS.openApi,
      schema: {
        operationId: 'openApi',
        tags: ['session'],
        summary: 'This document',
        security: [],
        response: {
          200: {
            description: 'OpenAPI 3.1.',
            headers: headersNamed('X-Request-Id'),
            content: { 'application/json': { schema: { type: 'object' } } },
          },
        },
      },
      handler(_request, reply) {
        document ??= JSON.stringify(server.swagger())
        return reply.type('application/json').send(document)
      },
    })
  },
  { name: 'openapi', dependencies: ['hooks'] },
)

/** Errors that any request may get, such as 404, 405, 408, 414, 431 and 500, if the operation says nothing else. */
function withOtherProblems(schema: FastifySchema): FastifySchema {
  const response = {
    400: problemResponse('invalid_request'),
    default: problemResponse(OTHER_ERROR),
    ...(schema.response as object),
  }
  return { ...schema, response }
}

/** Each HEAD is its GET, with responses without their bodies. */
function withHeads(document: Pick<OpenAPIV3_1.Document, 'paths'>): object {
  for (const item of Object.values(document.paths ?? {})) {
    const get = item?.get
    if (item?.head === undefined || get === undefined) continue
    const { operationId = '', responses = {} } = get
    item.head = {
      ...get,
      // No declared operation has this name: theirs begin with a capital letter.
      operationId: `head${operationId[0]!.toUpperCase()}${operationId.slice(1)}`,
      summary: `${get.summary}: head alone`,
      responses: Object.fromEntries(
        Object.entries(responses).map(([status, response]) => [status, { ...response, content: undefined }]),
      ) as typeof responses,
    }
  }
  return document
}

/** Description of the errors that an operation shares with all others. */
export const OTHER_ERROR = 'any other error: not_found, method_not_allowed, internal_error, …'

/** Parameters of a path or a query by their names, each with its schema. The handlers check them, before the body is read. */
export const parameters = (properties: Readonly<Record<string, object>>) => ({ type: 'object', properties })

/** Headers of requests for operations that refuse those of other origins, and `more`. */
export const requestHeaders = (...more: string[]) =>
  parameters({
    ...Object.fromEntries(more.map((name) => [name, { type: 'string' }])),
    'X-CSRF': {
      const: '1',
      description:
        'Required if the request has neither `Sec-Fetch-Site` nor `Origin`: programs send neither, nor do GETs of browsers over http except to localhost.',
    },
  })

/** The `headers` of a response, by their names. */
export function headersNamed(...names: (keyof typeof HEADERS)[]) {
  return Object.fromEntries(names.map((name) => [name, HEADERS[name]]))
}

/** A response without a body. */
export const plainResponse = (description: string) => ({
  type: 'null',
  description,
  headers: headersNamed('X-Request-Id'),
})

/** A redirect of the browser. */
export const redirectResponse = (description: string) => ({
  type: 'null',
  description,
  headers: headersNamed('X-Request-Id', 'Location'),
})

/** A page of this server. */
export const pageResponse = (description: string) => ({
  description,
  headers: headersNamed('X-Request-Id'),
  content: PAGE,
})

const PAGE = { 'text/html': { schema: { type: 'string', description: 'For a navigation.' } } }

/** An error response; the description names its codes. */
export const problemResponse = (description: string) => ({
  description,
  headers: headersNamed('X-Request-Id', ...extraHeadersOf(description)),
  content: { 'application/problem+json': { schema: { $ref: 'Problem#' } } },
})

/** An error response that a navigation gets as a page. */
export function problemOrPage(description: string) {
  const response = problemResponse(description)
  return { ...response, content: { ...response.content, ...PAGE } }
}

function extraHeadersOf(description: string): ('Retry-After' | 'WWW-Authenticate')[] {
  if (/\b(rate_limited|store_unavailable|authorization_server_unavailable)\b/.test(description))
    return ['Retry-After']
  return /\b(login_required|invalid_credentials)\b/.test(description) ? ['WWW-Authenticate'] : []
}

/** A JSON response; `schema` is the id of a shared schema, of which nothing but its members is sent. */
export const jsonResponse = (description: string, schema: string) => ({
  description,
  headers: headersNamed('X-Request-Id'),
  content: { 'application/json': { schema: { $ref: `${schema}#` } } },
})
