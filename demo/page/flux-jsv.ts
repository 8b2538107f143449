import type { Tree } from './tree.ts'

/**
 * JSV, ServiceStack's text format: JSON with CSV's quoting, so a string needs quotation marks only around
 * `{ } [ ] , "`, and two of them stand for one. Throws a `SyntaxError`.
 */
export function parseJsv(text: string): Tree {
  let at = 0
  const fail = (expected: string): never => {
    throw new SyntaxError(`JSV: ${expected} is missing at character ${at}`)
  }

  const quoted = (): string => {
    const match = /"((?:[^"]|"")*)"/y
    match.lastIndex = at
    const found = match.exec(text) ?? fail('a closing quotation mark')
    at = match.lastIndex
    return found[1]!.replaceAll('""', '"')
  }

  const bare = (stop: string): string => {
    const start = at
    while (at < text.length && !stop.includes(text[at]!)) at += 1
    return text.slice(start, at)
  }

  const list = (): Tree[] => {
    const items: Tree[] = []
    at += 1
    if (text[at] === ']') at += 1
    else {
      do items.push(value())
      while (text[at++] === ',')
      if (text[at - 1] !== ']') fail(']')
    }
    return items
  }

  const members = (): Tree => {
    const found: [string, Tree][] = []
    at += 1
    if (text[at] === '}') at += 1
    else {
      do {
        const name = text[at] === '"' ? quoted() : bare(':,}')
        if (text[at++] !== ':') fail(':')
        found.push([name, value()])
      } while (text[at++] === ',')
      if (text[at - 1] !== '}') fail('}')
    }
    return Object.fromEntries(found)
  }

  const value = (): Tree => {
    switch (text[at]) {
      case '{':
        return members()
      case '[':
        return list()
      case '"':
        return quoted()
      default:
        return bare(',]}')
    }
  }

  text = text.trim()
  const tree = value()
  if (at < text.length) fail('the end')
  return tree
}
