import type { Operation, Segment } from '../config/operation.ts'
import { DATA, prefixOf, WAC } from '../paths.ts'
import { compileParameter } from './operation.ts'
import type { AccountRules } from './outgoing-request.ts'

const MAX_LENGTH = 2_048

/**
 * Where browsers find what an address of the resource server names: below `/data`, if a declared GET has that path. null
 * for any other address, and for one with a query or a fragment.
 */
export function createOwnPaths(
  baseUrl: string,
  operations: readonly Operation[],
  accounts: AccountRules,
): (location: string) => string | null {
  const base = new URL(baseUrl)
  const { origin } = base
  const prefix = prefixOf(base)
  const readable = operations.filter(({ method }) => method === 'GET').map(compile)

  return (location) => {
    // A reference to another host may begin with two slashes, and one without any depends on the request.
    if (location.length > MAX_LENGTH || !/^(?:https?:\/\/|\/(?![/\\]))/i.test(location)) return null
    const url = URL.canParse(location, origin) ? new URL(location, origin) : null
    if (url === null || url.origin !== origin || url.search !== '' || url.hash !== '') return null
    if (!url.pathname.startsWith(`${prefix}/`)) return null
    const path = url.pathname.slice(prefix.length)
    const parts = path.slice(1).split('/')
    return readable.some((matches) => matches(parts)) ? DATA + path : null
  }

  function compile({ segments, parameters }: Operation): (parts: readonly string[]) => boolean {
    const accept = segments.map((segment: Segment): ((part: string) => boolean) => {
      if ('literal' in segment) return (part) => part === segment.literal
      const { parameter } = segment
      if (parameter !== 'wac') return compileParameter(parameters[parameter]!)
      return (part) => WAC.test(part) && (accounts.allowed?.has(part) ?? true)
    })
    return (parts) => parts.length === accept.length && accept.every((takes, at) => takes(parts[at]!))
  }
}
