import { BUILT_IN } from '../../src/config/built-in.ts'
import { quoted } from '../../src/config/kinds.ts'
import { mayMatchSamePath, pathOfOperation } from '../../src/config/operation.ts'
import { ID, prefixOf } from '../../src/paths.ts'

/** An address of the resource server that the operator gives, taken apart. */
export interface Sample {
  /** Below `BASE_URL`, without the query. */
  readonly path: string
  readonly segments: readonly string[]
  /** Without `format`, which each operation has. */
  readonly query: readonly (readonly [name: string, value: string])[]
}

/** The sample at this address. A string says why there is none, and names the address without its query. */
export function readSample(address: string, baseUrl: string): Sample | string {
  const [shown = ''] = address.split(/[?#]/, 1)
  const refused = (why: string): string => `--draft: ${quoted(shown)} ${why}`
  if (!URL.canParse(address)) return `${refused('is no address')}: it must begin with ${baseUrl}/`
  const url = new URL(address)
  const base = new URL(baseUrl)
  const prefix = prefixOf(base)
  if (url.username !== '' || url.password !== '')
    return `--draft: an address of ${quoted(url.host)} has a user name or a password: leave it out`
  if (url.origin !== base.origin || !url.pathname.startsWith(`${prefix}/`))
    return refused(`is not below BASE_URL (${baseUrl})`)
  const path = url.pathname.slice(prefix.length)
  const segments = path.slice(1).split('/')
  for (const segment of segments) {
    if (segment === '')
      return refused('has an empty segment, or a slash at its end, which cannot be declared')
    if (!ID.test(segment))
      return refused(`has the segment ${quoted(segment)}: only A-Z a-z 0-9 _ . ~ - can be declared`)
  }
  const literals = { segments: segments.map((literal) => ({ literal })), parameters: {} }
  const known = BUILT_IN.find(
    (operation) => operation.method === 'GET' && mayMatchSamePath(operation, literals),
  )
  if (known !== undefined)
    return refused(`is ${known.name} (${pathOfOperation(known)}), which needs no declaration: leave it out`)
  const query = [...url.searchParams].filter(([name]) => name.toLowerCase() !== 'format')
  return { path, segments, query }
}

/** The query as it is sent. */
export function queryTextOf({ query }: Sample): string {
  return query.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join('&')
}
