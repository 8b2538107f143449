import { problem } from '../errors.ts'

/** The query of a request target, in order and undecided about repetitions. */
export function queryOf(url: string): URLSearchParams {
  const at = url.indexOf('?')
  return new URLSearchParams(at < 0 ? '' : url.slice(at + 1))
}

/** The one value of a parameter, null when it is absent; a repeated one is a fault. */
export function soleParameter(query: URLSearchParams, name: string): string | null {
  const values = query.getAll(name)
  if (values.length > 1) throw problem('invalid_request', `The parameter ${name} is repeated.`)
  return values[0] ?? null
}
