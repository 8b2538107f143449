import type { FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import type { Format } from './format.ts'
import { acceptedFormat, MEDIA_TYPE, namedFormat } from './format.ts'
import type { Operation } from './operation.ts'
import type { WacOptions } from './path-parts.ts'
import { fluxIdOf, wacOf } from './path-parts.ts'
import { queryPieces } from './query-pieces.ts'

/** Names that would present a token of the browser's choice, turn the answer into a script, or the call into another. */
const REFUSED = new Set([
  'access_token',
  'oauth_token',
  'callback',
  'x-http-method-override',
  'x-http-method',
  'x-method-override',
  '_method',
])

/** GetFlux (service document, section 4.2) from a request of the browser; throws what is wrong with it. */
export function readGetFlux(request: FastifyRequest, wacOptions: WacOptions): Operation {
  const { wac: given, fluxId: id } = request.params as { wac?: string; fluxId: string }
  const fluxId = fluxIdOf(id)
  const wac = wacOf(given, wacOptions)
  let format: Format | null = null
  const passed: string[] = []
  for (const { name, value, raw } of queryPieces(request.url)) {
    // Servers of this kind read names in any case.
    const known = name.trim().toLowerCase()
    if (/\p{Cc}/u.test(name))
      throw problem('invalid_request', 'A parameter has a control character in its name.')
    if (REFUSED.has(known)) throw problem('invalid_request', `The parameter ${known} is not allowed.`)
    // Some of them let a parameter of the query override the path's.
    if ((known === 'wac' && value !== wac) || (known === 'fluxid' && value !== fluxId)) {
      throw problem('invalid_request', `The parameter ${known} does not agree with the path.`)
    }
    if (known !== 'format') passed.push(raw)
    else if (format !== null) throw problem('invalid_request', 'The parameter format is repeated.')
    else format = namedFormat(value)
  }
  format ??= acceptedFormat(request.headers.accept)
  if (format === null) throw problem('not_acceptable', 'Flux comes as JSON, XML, CSV or JSV.')
  const query = [`format=${format}`, ...passed].join('&')
  return {
    name: 'GetFlux',
    wac,
    fluxId,
    method: request.method === 'HEAD' ? 'HEAD' : 'GET',
    path: `/${wac}/flux/${fluxId}?${query}`,
    accept: MEDIA_TYPE[format],
    contentType: MEDIA_TYPE[format],
    body: null,
    jsonp: false,
  }
}
