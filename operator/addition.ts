/** How one more value gets into a variable. */
export interface Addition {
  /** The line for the environment; null: there is none. */
  readonly setting: string | null
  /** The end of a sentence; empty where the line says all. */
  readonly words: string
}

/** Adds to a variable that takes several values. A line would drop the ones that are set, so that words say what to add. */
export function additionTo(
  variable: 'OAUTH_AUTHORIZE_PARAMS' | 'OAUTH_REFUSED_GRANT' | 'UPSTREAM_INVALID_TOKEN',
  value: string,
  present: readonly unknown[],
): Addition {
  return present.length === 0
    ? { setting: `${variable}=${value}`, words: '' }
    : { setting: null, words: `: add ${value} to ${variable}` }
}
