/** Text of Redis or the platform in one line, without what could control the operator's terminal. */
export function inAscii(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, '?')
}

/** JSON of ASCII alone: nothing of it is replaced where it is printed. */
export function asciiJson(value: object): string {
  return JSON.stringify(value).replace(
    /[^\x20-\x7e]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
