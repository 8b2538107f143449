import { problem } from '../errors.ts'

const MAX_PARAMETERS = 100

/**
 * The query of a request target, without its question mark; '' without one. Throws `invalid_request` for one with more than
 * 100 parameters: to read thousands would take many times as long as the response.
 */
export function queryIn(url: string): string {
  const at = url.indexOf('?')
  const query = at < 0 ? '' : url.slice(at + 1)
  if (query.split('&', MAX_PARAMETERS + 1).length > MAX_PARAMETERS)
    throw problem('invalid_request', `The query has more than ${MAX_PARAMETERS} parameters.`)
  return query
}
