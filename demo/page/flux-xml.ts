import type { Tree } from './tree.ts'

interface Element {
  name: string
  text: string
  children: [string, Tree][]
}

/**
 * The elements and attributes of an XML document, without namespaces; repeated elements become a list. It reads
 * what a serializer writes and leaves document types and processing instructions unread. Throws a `SyntaxError`.
 */
export function parseXml(text: string): Tree {
  const root: Element = { name: '', text: '', children: [] }
  const open: Element[] = [root]
  const token =
    /<!--[\s\S]*?-->|<!\[CDATA\[([\s\S]*?)\]\]>|<[?!][^>]*>|<\/([^\s>]+)\s*>|<([^\s/>]+)((?:[^>"']|"[^"]*"|'[^']*')*?)(\/?)>|([^<]+)/g
  let end = 0
  for (const match of text.matchAll(token)) {
    if (match.index !== end) break
    end = match.index + match[0].length
    const [, cdata, closed, opened, attributes, selfClosed, plain] = match
    const current = open.at(-1)!
    if (cdata !== undefined) current.text += cdata
    else if (plain !== undefined) current.text += decodeEntities(plain)
    else if (opened !== undefined) {
      const element = { name: opened, text: '', children: readAttributes(attributes ?? '') }
      if (selfClosed === '/') current.children.push([localName(opened), treeOf(element)])
      else open.push(element)
    } else if (closed !== undefined) {
      if (closed !== current.name || open.length === 1)
        throw new SyntaxError(`XML: </${closed}> closes nothing`)
      open.pop()
      open.at(-1)!.children.push([localName(closed), treeOf(current)])
    }
  }
  if (end < text.length) throw new SyntaxError(`XML: unreadable markup at character ${end}`)
  if (open.length > 1) throw new SyntaxError(`XML: <${open.at(-1)!.name}> is not closed`)
  if (root.children.length === 0) throw new SyntaxError('XML: there is no element')
  return treeOf(root)
}

function treeOf(element: Element): Tree {
  if (element.children.length === 0) return element.text.trim()
  const members = new Map<string, Tree[]>()
  for (const [name, child] of element.children) {
    const found = members.get(name)
    if (found === undefined) members.set(name, [child])
    else found.push(child)
  }
  const text = element.text.trim()
  if (text !== '') members.set('text', [text])
  return Object.fromEntries(
    [...members].map(([name, found]) => [name, found.length === 1 ? found[0]! : found]),
  )
}

function readAttributes(source: string): [string, Tree][] {
  return [...source.matchAll(/([^\s=]+)\s*=\s*(?:"([^"]*)"|'([^']*)')/g)]
    .filter(([, name]) => !/^xmlns(?::|$)/.test(name!))
    .map(([, name, double, single]) => [localName(name!), decodeEntities(double ?? single ?? '')])
}

function localName(name: string): string {
  return name.slice(name.indexOf(':') + 1)
}

const ENTITIES: Record<string, string> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" }

function decodeEntities(text: string): string {
  return text.replace(/&(?:#x([0-9a-f]+)|#(\d+)|(\w+));/gi, (whole, hex, decimal, name) => {
    if (name !== undefined) return ENTITIES[name] ?? whole
    const point = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16)
    return point <= 0x10ffff ? String.fromCodePoint(point) : whole
  })
}
