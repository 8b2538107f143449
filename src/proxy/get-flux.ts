import type { FastifyRequest } from 'fastify'
import { GET_FLUX } from '../config/built-in.ts'
import { FORMATS, isReservedInQueries, sameName } from '../config/operation.ts'
import { problem } from '../errors.ts'
import { FREE_PARAMETERS, forwardHeaders, headersNamed, parameters, problemOrPage } from '../http/openapi.ts'
import { parameterAt } from '../http/problems.ts'
import { ID, PATHS } from '../paths.ts'
import { MEDIA_TYPE } from './formats.ts'
import { compileOperation, type Query, queryWithFormat, type RoutedOperation } from './operation.ts'
import {
  type AccountRules,
  ANY_TYPE,
  FORWARD_PROBLEMS,
  forwardProblem,
  NO_CONTROLS,
  WAC_SCHEMA,
} from './outgoing-request.ts'

/** GetFlux, with or without the account in the path. `isSessionOptional`: the application reads without a session. */
export function getFlux(accounts: AccountRules, isSessionOptional: boolean): RoutedOperation {
  return {
    routes: routesOf(isSessionOptional),
    schemas: [FLUX],
    body: null,
    read: compileOperation(GET_FLUX, accounts, { readQuery }),
  }
}

/** Other parameters pass: the document does not say which ones there are. */
function readQuery(request: FastifyRequest): Query {
  return queryWithFormat(
    request,
    { formats: FORMATS, formatInQuery: true },
    ({ name, raw }, position, spelled) => {
      const parameter = parameterAt(position, name.trim().toLowerCase())
      if (OF_GENERATED_CLIENT.test(name))
        throw problem('invalid_request', `${parameter} is not sent like this: write a=1 for parameters[a]=1.`)
      // Some servers let a parameter of the query override the path's. `wac` is reserved everywhere.
      if (spelled === FLUX_ID || isReservedInQueries(name, spelled))
        throw problem('invalid_request', `${parameter} is not allowed.`)
      return raw
    },
  )
}

const FLUX_ID = sameName('fluxId')

/** A client that does not follow the document's `explode` would read the wrong data. */
const OF_GENERATED_CLIENT = /^parameters\[.*\]$/

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
    ...ANY_TYPE,
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
        examples: ['JSON'],
      },
      [FREE_PARAMETERS]: {
        type: 'object',
        propertyNames: { pattern: NO_CONTROLS },
        additionalProperties: { type: ['string', 'number', 'boolean'] },
        // Tools would fill in `additionalProp1`.
        examples: [{}],
        description:
          'Any other parameter, as in `values=3&from=a`: passed on under its own name, but for those that would name an account, a Flux or a token, wrap the response, or change the method.',
      },
    }),
    headers: forwardHeaders(true),
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
  const fluxId = { type: 'string', pattern: ID.source, examples: ['temperature'] }
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
