import { problem } from '../errors.ts'
import { isFluxId, WAC } from '../paths.ts'

const SITE_ID = /^\d{1,16}$/

/** Where an account code may come from, and which are allowed. */
export interface WacOptions {
  default: string | null
  allowed: ReadonlySet<string> | null
}

/** The account code of a call: the one given, else the configured default. */
export function wacOf(given: string | undefined, { default: configured }: WacOptions): string {
  const wac = given ?? configured
  if (wac === null)
    throw problem('invalid_request', 'No account code: wac is neither given nor configured (WAC).')
  if (!WAC.test(wac)) throw problem('invalid_request', 'wac must be 1 to 64 letters, digits, "-" or "_".')
  return wac
}

export function mayUse(wac: string, { allowed }: WacOptions): boolean {
  return allowed === null || allowed.has(wac)
}

export function fluxIdOf(given: string): string {
  if (!isFluxId(given)) {
    throw problem('invalid_request', 'fluxId must be 1 to 128 letters, digits, "-", "_", "." or "~".')
  }
  return given
}

/** A site's id and whether the path asked for JSON by its suffix (service document, section 4.3). */
export function siteIdOf(given: string): { siteId: number; json: boolean } {
  const json = given.endsWith('.json')
  const digits = json ? given.slice(0, -'.json'.length) : given
  const siteId = Number(digits)
  if (!SITE_ID.test(digits) || !Number.isSafeInteger(siteId)) {
    throw problem('invalid_request', `siteID must be a whole number from 0 to ${Number.MAX_SAFE_INTEGER}.`)
  }
  return { siteId, json }
}
