import { ID, type Operation, type ParameterType, type QueryType } from '../config/operations.ts'
import {
  CSRF_PARAMETER,
  inPath,
  inQuery,
  type OpenApiFragment,
  problemOrPage,
  withHead,
} from '../http/openapi.ts'
import { MEDIA_TYPE } from './formats.ts'
import { patternOf } from './operation.ts'
import { FORWARD_PROBLEMS, FORWARD_SCHEMAS, forwardProblem, WAC_PARAMETER } from './outgoing-request.ts'

/** The declared operations in the OpenAPI document. */
export function operationsOpenApi(operations: readonly Operation[]): OpenApiFragment[] {
  return operations.map((operation) => ({
    paths: { [patternOf(operation)]: methodsOf(operation) },
    schemas: {
      ...FORWARD_SCHEMAS,
      ...(operation.body === null
        ? {}
        : { [`${operation.name}Body`]: bodySchema(operation.name, operation.body.schema) }),
    },
  }))
}

function methodsOf(operation: Operation): object {
  const { name, method, segments, parameters, query, formats, body, application } = operation
  const inSegments = segments.flatMap((part) => {
    if ('literal' in part) return []
    return part.parameter === 'wac'
      ? [WAC_PARAMETER]
      : [parameterOf(part.parameter, parameters[part.parameter]!)]
  })
  const content = {
    ...Object.fromEntries(
      formats.map((format) => [MEDIA_TYPE[format], { schema: format === 'JSON' ? {} : { type: 'string' } }]),
    ),
    '*/*': { schema: { type: 'string', description: 'Another type that the resource server chose.' } },
  }
  const described = {
    operationId: name,
    tags: ['platform'],
    summary: name,
    parameters: [
      ...inSegments,
      inQuery('format', { type: 'string', enum: formats }),
      ...Object.entries(query).map(([parameter, type]) => inQuery(parameter, schemaOf(type))),
      CSRF_PARAMETER,
    ],
    ...(body === null
      ? {}
      : {
          requestBody: {
            required: true,
            content: { 'application/json': { schema: { $ref: `#/components/schemas/${name}Body` } } },
          },
        }),
    responses: {
      '2XX': { description: 'The response of the resource server, byte for byte.', content },
      304: { description: 'Unchanged since `If-None-Match` or `If-Modified-Since`.' },
      406: problemOrPage('not_acceptable'),
      ...(body === null
        ? {}
        : { 413: forwardProblem('payload_too_large'), 415: forwardProblem('unsupported_media_type') }),
      ...FORWARD_PROBLEMS,
    },
    ...(application ? { security: [{ session: [] }, {}] } : {}),
  }
  return method === 'GET' ? withHead(described) : { [method.toLowerCase()]: described }
}

function parameterOf(name: string, type: ParameterType): object {
  if (typeof type === 'object')
    return { name, in: 'path', required: true, schema: { type: 'string', enum: type.enum } }
  return inPath(name, type === 'integer' ? '^(0|[1-9][0-9]{0,15})$' : ID.source)
}

function schemaOf(type: QueryType): object {
  if (type === 'text') return { type: 'string', maxLength: 512 }
  if (typeof type === 'string') return { type }
  if ('enum' in type) return { type: 'string', enum: type.enum }
  return { type: 'integer', minimum: type.integer[0], maximum: type.integer[1] }
}

/** The schema of a body as a part of the document: its references to itself lead to where it is there. */
function bodySchema(name: string, schema: object | null): object {
  return schema === null
    ? { type: 'object' }
    : (movedTo(`#/components/schemas/${name}Body`, schema) as object)
}

function movedTo(place: string, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((part) => movedTo(place, part))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([name, part]) => [
      name,
      name === '$ref' && typeof part === 'string' ? part.replace(/^#/, place) : movedTo(place, part),
    ]),
  )
}
