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
    code: { type: 'string', enum: PROBLEM_CODES, description: 'Stable; what a program should look at.' },
    requestId: { type: 'string' },
    loginUrl: { type: 'string', description: 'Where to navigate to sign in.' },
    reason: { $ref: 'SignInReason#' },
  },
}

const HEADERS = {
  'X-Request-Id': { type: 'string', description: 'Also in the logs.' },
  'Retry-After': { type: 'integer', minimum: 0, description: 'Seconds to wait before the next try.' },
  Location: { type: 'string', description: 'Where the browser goes next.' },
  'WWW-Authenticate': { type: 'string' },
  ETag: { type: 'string', description: 'Send it back as `If-None-Match`.' },
  'Last-Modified': { type: 'string', description: 'Send it back as `If-Modified-Since`.' },
}

/**
 * Serves `/openapi.json`: the schemas of the routes of all plugins that are registered from now on, as an OpenAPI 3.1
 * document of what browsers may call with this configuration. `sessionCookie` is the name of that cookie.
 */
export const openApi = fastifyPlugin<{ sessionCookie: string }>(
  async (server, { sessionCookie }) => {
    // Imported late, so that it is a chunk of its own: in that of the forwarded calls it costs each of them 4 % (Node 20).
    const { default: fastifySwagger } = await import('@fastify/swagger')
    const components: Record<string, unknown> = {}
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
      transform: ({ schema, url, route }) => {
        Object.assign(components, route.config?.documentedComponents)
        return { schema: withOtherProblems(schema), url: route.config?.documentedUrl ?? url }
      },
      // No `servers`: a generated client calls the origin of its page, not the address that a developer generated it from.
      transformObject: (document) => {
        const { openapiObject } = document as { openapiObject: OpenAPIV3_1.Document }
        Object.assign(openapiObject.components!.schemas!, components)
        withSharedHeaders(openapiObject)
        return withHeads(openapiObject)
      },
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

/** The name of the one parameter that stands for any others. */
export const FREE_PARAMETERS = 'parameters'

/** Parameters in headers are the same for all operations, so each is described once. */
function withSharedHeaders({ paths = {}, components = {} }: OpenAPIV3_1.Document): void {
  const shared: Record<string, OpenAPIV3_1.ParameterObject> = {}
  for (const operation of Object.values(paths).flatMap((item) => Object.values(item ?? {}))) {
    const { parameters } = operation as OpenAPIV3_1.OperationObject
    for (const [at, parameter] of parameters?.entries() ?? []) {
      if ('$ref' in parameter) continue
      // Each member is a parameter of its own. That is the default, which not every generator follows.
      if (parameter.name === FREE_PARAMETERS) Object.assign(parameter, { style: 'form', explode: true })
      if (parameter.in !== 'header') continue
      shared[parameter.name] = parameter
      parameters![at] = { $ref: `#/components/parameters/${parameter.name}` }
    }
  }
  components.parameters = shared
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

/**
 * Parameters of a path or a query by their names, each with its schema and an example in `examples`. The handlers check
 * them, before the body is read.
 */
export const parameters = (properties: Readonly<Record<string, object>>) => ({ type: 'object', properties })

// Without examples: tools would fill them in, and read the first bytes of a Flux alone.
const REQUEST_HEADERS = {
  'If-None-Match': { type: 'string', description: 'The `ETag` of an earlier response.' },
  'If-Modified-Since': { type: 'string', description: 'The `Last-Modified` of an earlier response.' },
  Range: { type: 'string', description: 'Bytes to read, as in `bytes=0-499`.' },
  'X-Activity': {
    type: 'string',
    description: 'With `none` the call is of a timer, and does not extend the session.',
  },
  // One word in an `enum`: openapi-python-client leaves out operations whose header has a `const`.
  'X-CSRF': {
    type: 'string',
    enum: ['1'],
    description:
      'Required if the request has neither `Sec-Fetch-Site` nor `Origin`: programs send neither, nor do GETs of browsers over http except to localhost.',
  },
}

/** Headers of requests for operations that refuse those of other origins, and `more`. */
export const requestHeaders = (...more: (keyof typeof REQUEST_HEADERS)[]) =>
  parameters(Object.fromEntries([...more, 'X-CSRF' as const].map((name) => [name, REQUEST_HEADERS[name]])))

/** Headers of requests that are forwarded. `isRead`: by GET. */
export const forwardHeaders = (isRead: boolean) =>
  isRead
    ? requestHeaders('If-None-Match', 'If-Modified-Since', 'Range', 'X-Activity')
    : requestHeaders('X-Activity')

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

/**
 * An error response that a navigation gets as a page. The schema of the page has no type, but a property: so code that
 * reads the `code` of an error compiles in clients that join the types of all contents.
 */
export function problemOrPage(description: string) {
  const response = problemResponse(description)
  const page = {
    'text/html': { schema: { description: 'For a navigation.', properties: { code: { type: 'string' } } } },
  }
  return { ...response, content: { ...response.content, ...page } }
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
