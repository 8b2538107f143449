/** Text of Redis or the platform in one line, without what could control the operator's terminal. */
export function inAscii(text: string): string {
  return text.replaceAll('…', '...').replace(/[^\x20-\x7e]/g, '?')
}

/** Text of the environment or of the operator's own file in one line: as it is, but for what could control a terminal. */
export function printable(text: string): string {
  return text.replace(
    /[\p{C}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`,
  )
}

/** JSON of ASCII alone: nothing of it is replaced where it is printed. */
export function asciiJson(value: object | string, indent = 0): string {
  return JSON.stringify(value, null, indent).replace(
    /[^\x20-\x7e\n]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** An instant in ISO 8601, in UTC. Redis may hold a number that is none. */
export function iso(epochMs: number): string {
  const at = new Date(epochMs)
  return Number.isNaN(at.getTime()) ? 'unknown' : at.toISOString()
}
