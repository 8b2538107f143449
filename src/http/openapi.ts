import type { Config } from '../config/config.ts'
import { PROBLEM_CODES } from '../errors.ts'

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
    reason: { type: 'string', description: 'Why the session ended, with `login_required`.' },
  },
}

/** OpenAPI 3.1 description of what browsers may call with this configuration, as data. */
export function openApiDocument(
  { publicUrl, secureCookies }: Pick<Config, 'publicUrl' | 'secureCookies'>,
  fragments: readonly OpenApiFragment[],
) {
  const paths: Record<string, object> = {}
  for (const [pattern, operations] of fragments.flatMap((fragment) => Object.entries(fragment.paths))) {
    const path = pattern.replace(/:(\w+)/g, '{$1}')
    paths[path] = { ...paths[path], ...operations }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Backend for frontend',
      version: '1',
      description:
        'Sign-in, session and calls to the data platform for a single-page app on the same origin. The session cookie is the only credential; no answer holds a token.',
    },
    servers: [{ url: publicUrl }],
    security: [{ session: [] }],
    paths,
    components: {
      securitySchemes: {
        session: {
          type: 'apiKey',
          in: 'cookie',
          name: secureCookies ? '__Host-Http-session' : 'session',
        },
      },
      schemas: Object.assign({ Problem: PROBLEM }, ...fragments.map(({ schemas }) => schemas)),
    },
  }
}

/** A required path parameter; `pattern` is a regular expression. */
export const inPath = (name: string, pattern: string) => ({
  name,
  in: 'path',
  required: true,
  schema: { type: 'string', pattern },
})

/** An optional query parameter. */
export const inQuery = (name: string, schema: object) => ({ name, in: 'query', schema })

/** A response without a described body. */
export const plainResponse = (description: string) => ({ description })

/** An error response; the description names its codes. */
export const problemResponse = (description: string) => ({
  description,
  content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
})

/** A JSON response with a schema of the document. */
export const jsonResponse = (description: string, schema: string) => ({
  description,
  ...jsonContent(schema),
})

/** A required JSON request body with a schema of the document. */
export const jsonBody = (schema: string) => ({ required: true, ...jsonContent(schema) })

const jsonContent = (schema: string) => ({
  content: { 'application/json': { schema: { $ref: `#/components/schemas/${schema}` } } },
})
