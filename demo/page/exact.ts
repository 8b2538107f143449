/** A part of an answer; `parsed` is what a program that parses it makes of it, where that differs. */
interface Part {
  text: string
  parsed?: string
}

const NUMBER = /(?<![\w."-])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.:-])/g
const INTEGER = /(?<![\w.-])\d{16,}(?![\w.:-])/g
const INSTANT = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{4,}Z/g

/** Splits an answer at the numbers and instants that change when JavaScript reads and writes them. */
export function splitExact(text: string): Part[] {
  const found = new Map<number, Part>()
  for (const [pattern, parse] of [
    [NUMBER, (match: string) => String(Number(match))],
    [INTEGER, (match: string) => String(Number(match))],
    [INSTANT, parseInstant],
  ] as const) {
    for (const { 0: match, index } of text.matchAll(pattern)) {
      const parsed = parse(match)
      if (parsed !== match) found.set(index, { text: match, parsed })
    }
  }
  const parts: Part[] = []
  let at = 0
  for (const [index, part] of [...found].sort(([a], [b]) => a - b)) {
    if (index < at) continue
    if (index > at) parts.push({ text: text.slice(at, index) })
    parts.push(part)
    at = index + part.text.length
  }
  if (at < text.length) parts.push({ text: text.slice(at) })
  return parts
}

/** The instant that JavaScript reads; a text that is no instant as it is. */
function parseInstant(match: string): string {
  const time = Date.parse(match)
  return Number.isNaN(time) ? match : new Date(time).toISOString()
}

/** The first integer, instant and decimal that would change: one row each for a table. */
export function examplesOf(parts: readonly Part[]): Required<Part>[] {
  const kindOf = ({ text }: Part) =>
    text.includes('T') ? 'instant' : text.includes('.') ? 'decimal' : 'integer'
  const first = new Map<string, Required<Part>>()
  for (const part of parts) {
    if (part.parsed === undefined || first.has(kindOf(part))) continue
    first.set(kindOf(part), { text: part.text, parsed: part.parsed })
  }
  return [...first.values()]
}
