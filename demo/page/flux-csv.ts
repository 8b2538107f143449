import type { Tree } from './tree.ts'

/** The rows of a CSV text with a header line (RFC 4180), each as an object. Throws a `SyntaxError`. */
export function parseCsv(text: string): Tree {
  const [header, ...rows] = csvRows(text)
  if (header === undefined) return []
  return rows.map((row) => Object.fromEntries(header.map((name, i) => [name || `column${i}`, row[i] ?? ''])))
}

function csvRows(text: string): string[][] {
  const rows: string[][] = []
  let row: string[] = []
  const field = /("(?:[^"]|"")*"|[^",\r\n]*)(,|\r?\n|$)/y
  const source = text.replace(/^\ufeff/, '')
  while (field.lastIndex < source.length) {
    const at = field.lastIndex
    const match = field.exec(source)
    if (match === null) throw new SyntaxError(`CSV: a stray quotation mark near character ${at}`)
    const value = match[1] ?? ''
    row.push(value.startsWith('"') ? value.slice(1, -1).replaceAll('""', '"') : value)
    if (match[2] !== ',') {
      if (row.length > 1 || row[0] !== '') rows.push(row)
      row = []
    } else if (field.lastIndex === source.length) {
      row.push('')
    }
  }
  if (row.length > 0) rows.push(row)
  return rows
}
