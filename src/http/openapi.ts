import { PROBLEM_CODES } from '../errors.ts'
import { PATHS } from '../paths.ts'
import { VERSION } from '../version.ts'

/** The part of the OpenAPI document that describes what one folder serves. */
export interface OpenApiFragment {
  /** Route patterns, as in `PATHS`, with their operations by method. Fragments may share a path. */
  paths: Readonly<Record<string, object>>
  /** Schemas by name; those of request bodies are the ones that the routes validate with. */
  schemas: Readonly<Record<string, object>>
}

const PROBLEM = {
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
    reason: { $ref: '#/components/schemas/EndReason' },
  },
}

const HEADERS = {
  'X-Request-Id': { description: 'Also in the logs.', schema: { type: 'string' } },
  'Retry-After': {
    description: 'Seconds to wait before the next try.',
    schema: { type: 'integer', minimum: 1 },
  },
  Location: { required: true, description: 'Where the browser goes next.', schema: { type: 'string' } },
  'WWW-Authenticate': { schema: { type: 'string' } },
  ETag: { description: 'Send it back as `If-None-Match`.', schema: { type: 'string' } },
  'Last-Modified': { description: 'Send it back as `If-Modified-Since`.', schema: { type: 'string' } },
}

const CSRF = {
  name: 'X-CSRF',
  in: 'header',
  description:
    'Required if the request has neither `Sec-Fetch-Site` nor `Origin`: programs send neither, nor do GETs of browsers over http except to localhost.',
  schema: { const: '1' },
}

/** The document's part on its own route. */
const ownDescription = (): OpenApiFragment => ({
  paths: {
    [PATHS.openApi]: withHead({
      operationId: 'openApi',
      tags: ['session'],
      summary: 'This document',
      security: [],
      responses: {
        200: {
          description: 'OpenAPI 3.1.',
          headers: headersNamed('X-Request-Id'),
          content: { 'application/json': { schema: { type: 'object' } } },
        },
      },
    }),
  },
  schemas: {},
})

/** OpenAPI 3.1 description of what browsers may call with this configuration, as data. */
export function openApiDocument(
  { publicUrl, sessionCookie }: { publicUrl: string; sessionCookie: string },
  fragments: readonly OpenApiFragment[],
) {
  const paths: Record<string, object> = {}
  const all = [...fragments, ownDescription()]
  for (const [pattern, operations] of all.flatMap((fragment) => Object.entries(fragment.paths))) {
    const path = pattern.replace(/:(\w+)/g, '{$1}')
    paths[path] = { ...paths[path], ...withOtherProblems(operations) }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Backend for frontend',
      version: VERSION,
      license: { name: 'MIT', identifier: 'MIT' },
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
    paths,
    components: {
      securitySchemes: {
        session: {
          type: 'apiKey',
          in: 'cookie',
          name: sessionCookie,
        },
      },
      headers: HEADERS,
      parameters: { Csrf: CSRF },
      schemas: Object.assign({ Problem: PROBLEM }, ...all.map(({ schemas }) => schemas)),
    },
  }
}

/** Errors that any request may get, such as 404, 405, 408, 414, 431 and 500, if the operation says nothing else. */
function withOtherProblems(operations: object): object {
  return Object.fromEntries(
    Object.entries(operations as Record<string, { responses: object }>).map(([method, operation]) => [
      method,
      {
        ...operation,
        responses: {
          400: problemResponse('invalid_request'),
          default: problemResponse(OTHER_ERROR),
          ...operation.responses,
        },
      },
    ]),
  )
}

/** A read by GET, and the same by HEAD: its responses without their bodies. */
export function withHead(get: Operation): { get: object; head: object } {
  const responses = Object.entries({ ...get.responses, 400: { description: 'invalid_request' } }).map(
    ([status, response]) => [status, { ...response, content: undefined }],
  )
  const head = {
    ...get,
    // No declared operation has this name: theirs begin with a capital letter.
    operationId: `head${get.operationId[0]!.toUpperCase()}${get.operationId.slice(1)}`,
    summary: `${get.summary}: head alone`,
    responses: Object.fromEntries([...responses, ['default', { description: OTHER_ERROR }]]),
  }
  return { get, head: JSON.parse(JSON.stringify(head)) as object }
}

/** Description of the errors that an operation shares with all others. */
export const OTHER_ERROR = 'any other error: not_found, method_not_allowed, internal_error, …'

interface Operation {
  operationId: string
  summary: string
  responses: Readonly<Record<string, object>>
  [member: string]: unknown
}

/** For operations that refuse requests of other origins. */
export const CSRF_PARAMETER = { $ref: '#/components/parameters/Csrf' }

/** A required path parameter; `pattern` is a regular expression. */
export const inPath = (name: string, pattern: string) => ({
  name,
  in: 'path',
  required: true,
  schema: { type: 'string', pattern },
})

/** An optional query parameter. */
export const inQuery = (name: string, schema: object) => ({ name, in: 'query', schema })

/** The `headers` of a response, by their names. */
export function headersNamed(...names: (keyof typeof HEADERS)[]) {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]))
}

/** A response without a body. */
export const plainResponse = (description: string) => ({
  description,
  headers: headersNamed('X-Request-Id'),
})

/** A redirect of the browser. */
export const redirectResponse = (description: string) => ({
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
  content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
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

/** A JSON response with a schema of the document. */
export const jsonResponse = (description: string, schema: string) => ({
  description,
  headers: headersNamed('X-Request-Id'),
  ...jsonContent(schema),
})

/** A required JSON request body with a schema of the document. */
export const jsonBody = (schema: string) => ({ required: true, ...jsonContent(schema) })

const jsonContent = (schema: string) => ({
  content: { 'application/json': { schema: { $ref: `#/components/schemas/${schema}` } } },
})
