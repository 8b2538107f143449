/** Text of Redis or the platform in one line, without what could control the operator's terminal. */
export function inAscii(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, '?')
}
