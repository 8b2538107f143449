import { parseCsv } from './flux-csv.ts'
import { parseJsv } from './flux-jsv.ts'
import { parseXml } from './flux-xml.ts'
import type { Tree } from './tree.ts'

export type FluxFormat = 'JSON' | 'XML' | 'CSV' | 'JSV'

export interface Point {
  /** Milliseconds since 1970. */
  time: number
  value: number
}

export interface Series {
  name: string | null
  unit: string | null
  /** In order of time. */
  points: Point[]
}

/**
 * The series in the body of a Flux. The body's members are not specified, so it is found by its shape: the largest
 * group of siblings that each hold a timestamp and a number. `points` is empty where there is no such group.
 *
 * Throws a `SyntaxError` when the text is not in the format.
 */
export function parseFlux(format: FluxFormat, text: string): Series {
  return findSeries(readTree(format, text))
}

function readTree(format: FluxFormat, text: string): Tree {
  switch (format) {
    case 'JSON':
      return JSON.parse(text) as Tree
    case 'XML':
      return parseXml(text)
    case 'CSV':
      return parseCsv(text)
    case 'JSV':
      return parseJsv(text)
  }
}

function findSeries(tree: Tree): Series {
  const groups = new Map<string, Point[]>()
  const labels = new Map<string, string>()

  const visit = (node: Tree, path: string): void => {
    if (node === null || typeof node !== 'object') return
    const point = readPoint(node)
    if (point !== null) {
      const group = groups.get(path)
      if (group === undefined) groups.set(path, [point])
      else group.push(point)
    }
    if (Array.isArray(node)) {
      if (point === null) for (const item of node) visit(item, path)
      return
    }
    for (const [name, member] of Object.entries(node)) {
      const label = LABELS[name.toLowerCase()]
      if (label !== undefined && !labels.has(label) && isText(member)) labels.set(label, member)
      visit(member, `${path}/${name}`)
    }
  }

  visit(tree, '')
  const [largest = []] = [...groups.values()].sort((a, b) => b.length - a.length)
  return {
    name: labels.get('name') ?? null,
    unit: labels.get('unit') ?? null,
    points: largest.sort((a, b) => a.time - b.time),
  }
}

const LABELS: Record<string, string> = {
  name: 'name',
  label: 'name',
  title: 'name',
  unit: 'unit',
  units: 'unit',
}

function isText(value: Tree): value is string {
  return typeof value === 'string' && value !== '' && value.length <= 100
}

const TIME_NAME = /^(?:.*(?:date|time|timestamp|instant)|at|t|ts)$/i
const VALUE_NAME = /^(?:value|val|v|y|number|amount|measure)$/i
const ID_NAME = /(?:^|_)id$|[a-z]ID$|Id$|^(?:index|quality|status)$/

function readPoint(node: Tree[] | { [member: string]: Tree }): Point | null {
  if (Object.values(node).some((member) => member !== null && typeof member === 'object')) return null
  const named: [string, Tree][] = Array.isArray(node)
    ? node.length === 2
      ? [
          ['time', node[0]!],
          ['value', node[1]!],
        ]
      : []
    : Object.entries(node)
  const timed = named.find(([name, member]) => TIME_NAME.test(name) && readTime(member) !== null)
  const time = timed ?? named.find(([, member]) => typeof member === 'string' && readIso(member) !== null)
  if (time === undefined) return null
  const others = named.filter(([name]) => name !== time[0] && !ID_NAME.test(name))
  const value =
    others.find(([name, member]) => VALUE_NAME.test(name) && readNumber(member) !== null) ??
    others.find(([, member]) => readNumber(member) !== null)
  return value === undefined ? null : { time: readTime(time[1])!, value: readNumber(value[1])! }
}

function readTime(value: Tree): number | null {
  if (typeof value === 'string') {
    const iso = readIso(value)
    if (iso !== null) return iso
  }
  // Seconds or milliseconds since 1970: what is below this bound would be 1973 in milliseconds.
  const number = readNumber(value)
  if (number === null || number < 1e8) return null
  return number < 1e11 ? number * 1000 : number
}

/** ISO 8601, with any number of fractional digits, or .NET's `/Date(1700000000000)/`. */
function readIso(text: string): number | null {
  const dotnet = /^\\?\/Date\((-?\d+)(?:[+-]\d{4})?\)\\?\/$/.exec(text)
  if (dotnet !== null) return Number(dotnet[1])
  const iso = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(\.\d+)?(Z|[+-]\d\d:?\d\d)?)?$/.exec(text.trim())
  if (iso === null) return null
  const [, day, clock = '00:00', fraction = '', zone = 'Z'] = iso
  const time = Date.parse(`${day}T${clock}${fraction.slice(0, 4)}${zone}`)
  return Number.isNaN(time) ? null : time
}

function readNumber(value: Tree): number | null {
  if (typeof value === 'number') return Number.isFinite(value) ? value : null
  if (typeof value !== 'string' || !/^\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?\s*$/i.test(value)) return null
  const number = Number(value)
  return Number.isFinite(number) ? number : null
}
