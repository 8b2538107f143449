import type { FastifyRequest } from 'fastify'
import { GET_FLUX } from '../config/built-in.ts'
import { problem } from '../errors.ts'
import { headersNamed, parameters, problemOrPage, requestHeaders } from '../http/openapi.ts'
import { ID, PATHS } from '../paths.ts'
import { MEDIA_TYPE } from './formats.ts'
import { compileOperation, type Query, queryWithFormat, type RoutedOperation } from './operation.ts'
import { type AccountRules, FORWARD_PROBLEMS, forwardProblem, WAC_SCHEMA } from './outgoing-request.ts'

/** Parameters that would present another token, turn the response into a script, or change the method. */
const REJECTED = new Set([
  'access_token',
  'oauth_token',
  'callback',
  'x-http-method-override',
  'x-http-method',
  'x-method-override',
  '_method',
])

/** GetFlux, with or without the account in the path. `isSessionOptional`: the application reads without a session. */
export function getFlux(accounts: AccountRules, isSessionOptional: boolean): RoutedOperation {
  return {
    routes: routesOf(isSessionOptional),
    schemas: [FLUX],
    takesBody: false,
    read: compileOperation(GET_FLUX, accounts, { readQuery }),
  }
}

/** Other parameters pass: the document does not say which ones there are. */
function readQuery(request: FastifyRequest, path: Readonly<Record<string, string | number>>): Query {
  return queryWithFormat(request, GET_FLUX.formats, ({ name, value, raw }) => {
    // Some servers read names in any case.
    const lowerName = name.trim().toLowerCase()
    if (REJECTED.has(lowerName))
      throw problem('invalid_request', `The parameter ${lowerName} is not allowed.`)
    // Some servers let a parameter of the query override the path's.
    if ((lowerName === 'wac' && value !== path.wac) || (lowerName === 'fluxid' && value !== path.fluxId)) {
      throw problem('invalid_request', `The parameter ${lowerName} does not agree with the path.`)
    }
    return raw
  })
}

const FLUX = {
  $id: 'Flux',
  description: "The resource server's document does not show the body of a Flux.",
}

function routesOf(isSessionOptional: boolean): RoutedOperation['routes'] {
  const content = {
    ...Object.fromEntries(
      Object.values(MEDIA_TYPE).map((type) => [
        type,
        { schema: type === 'application/json' ? { $ref: 'Flux#' } : { type: 'string' } },
      ]),
    ),
    '*/*': { schema: { type: 'string', description: 'Another type that the resource server chose.' } },
  }
  const headers = headersNamed('ETag', 'Last-Modified')
  const common = {
    tags: ['platform'],
    summary: 'GetFlux',
    querystring: parameters({
      format: {
        type: 'string',
        enum: Object.keys(MEDIA_TYPE),
        description: 'In any case. Default: by `Accept`, else by `Content-Type`, else JSON.',
      },
      parameters: {
        type: 'object',
        additionalProperties: { type: ['string', 'number', 'boolean'] },
        description: `Any other parameter, passed on under its own name; refused are ${[...REJECTED].join(', ')}.`,
      },
    }),
    headers: requestHeaders('If-None-Match', 'If-Modified-Since', 'Range'),
    response: {
      200: { description: 'The response of the resource server, byte for byte.', headers, content },
      206: { description: 'The range that was asked for.', headers, content },
      304: {
        type: 'null',
        description: 'Unchanged since `If-None-Match` or `If-Modified-Since`.',
        headers,
      },
      406: problemOrPage('not_acceptable'),
      429: forwardProblem('rate_limited'),
      ...FORWARD_PROBLEMS,
    },
    ...(isSessionOptional ? { security: [{ session: [] }, {}] } : {}),
  }
  const fluxId = { type: 'string', pattern: ID.source }
  return [
    {
      method: 'GET',
      url: PATHS.flux,
      schema: { ...common, operationId: 'getFlux', params: parameters({ fluxId }) },
    },
    {
      method: 'GET',
      url: PATHS.fluxOfAccount,
      schema: {
        ...common,
        operationId: 'getFluxOfAccount',
        params: parameters({ wac: WAC_SCHEMA, fluxId }),
      },
    },
  ]
}
