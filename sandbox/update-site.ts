import type { SiteChange } from './sites.ts'

/** The site and its changes, or the reason why the request is invalid. */
type UpdateSiteRequest =
  | { kind: 'update'; wac: string; siteId: number; change: SiteChange }
  | { kind: 'faulty'; description: string }

const MEMBERS = ['wType', 'siteID', 'wac', 'name', 'description', 'code', 'parentInfrastructureID']

/**
 * Reads an UpdateSite body (document section 4.3). `route` is what the path says, null on
 * `/json/reply/UpdateSite`, where the body must say it. Which members are required is not shown:
 * none is, besides these two. Unknown members are refused, so that a misspelled one is noticed.
 */
export function readUpdateSite(
  body: string,
  route: { wac: string; siteId: number } | null,
): UpdateSiteRequest {
  const value = parse(body)
  if (value === null) return faulty('The body must be a JSON object.')
  const unknown = Object.keys(value).find((name) => !MEMBERS.includes(name))
  if (unknown !== undefined) return faulty('The body has a member that UpdateSite does not have.')
  if (value.wType !== undefined && value.wType !== 'UpdateSite') return faulty('wType must be UpdateSite.')

  const siteId = value.siteID ?? route?.siteId
  const wac = value.wac ?? route?.wac
  if (!isId(siteId)) return faulty('siteID must be an integer.')
  if (typeof wac !== 'string') return faulty('wac must be a string.')
  if (route !== null && (siteId !== route.siteId || wac !== route.wac)) {
    return faulty('siteID and wac must be those of the path.')
  }

  const change: SiteChange = {}
  for (const name of ['name', 'description', 'code'] as const) {
    const text = value[name]
    if (text === undefined) continue
    if (text !== null && typeof text !== 'string') return faulty(`${name} must be a string or null.`)
    change[name] = text ?? ''
  }
  const parent = value.parentInfrastructureID
  if (parent === null || parent === '') change.parentInfrastructureID = null
  else if (Number.isSafeInteger(parent)) change.parentInfrastructureID = parent as number
  else if (parent !== undefined) return faulty('parentInfrastructureID must be an integer, null or empty.')
  return { kind: 'update', wac, siteId, change }
}

/** The site of a path segment, `.json` at its end or not; null: it names no site. */
export function siteIdOf(segment: string): number | null {
  const digits = /^(\d{1,16})(?:\.json)?$/.exec(segment)?.[1]
  const id = Number(digits)
  return digits !== undefined && isId(id) ? id : null
}

/** Whether a JSONP response may begin with this: dotted JavaScript identifiers. */
export function isCallbackName(name: string): boolean {
  return name.length <= 128 && /^[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*$/.test(name)
}

function isId(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

function parse(body: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(body)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null
  } catch {
    return null
  }
}

function faulty(description: string): UpdateSiteRequest {
  return { kind: 'faulty', description }
}
