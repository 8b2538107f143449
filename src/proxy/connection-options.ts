const NONE: ReadonlySet<string> = new Set()

/**
 * The header names, in lower case, that a sender listed in its `Connection` field: they belong to that
 * one hop and are not passed on (RFC 9110 section 7.6.1).
 */
export function connectionOptions(value: string | string[] | undefined): ReadonlySet<string> {
  // Nearly every message says exactly one of these, and they name no field that is ever passed on.
  if (value === undefined || value === 'keep-alive' || value === 'close') return NONE
  const names = new Set<string>()
  for (const option of String(value).toLowerCase().split(',')) names.add(option.trim())
  return names
}
