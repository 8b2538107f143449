import type { FastifyRequest } from 'fastify'
import { errorResponse } from './access.ts'
import { chooseFormat, contentTypeOf, csvText, type Format, jsvText } from './formats.ts'
import { escapeMarkup } from './html.ts'
import { type SandboxResponse, textResponse, withHeaders } from './response.ts'

type Row = Readonly<Record<string, string | number>>

/** The rows that `search`, `skip` and `take` of the query choose, in the format that it asks for. */
export function listResponse(
  request: FastifyRequest,
  query: URLSearchParams,
  rows: readonly Row[],
): SandboxResponse {
  const numbers = ['skip', 'take'].map((name) => query.get(name) ?? '')
  if (numbers.some((text) => !/^(-?\d{1,16})?$/.test(text)))
    return errorResponse(400, 'invalid_request', 'skip and take must be whole numbers.')
  // Nothing is before the first row.
  const [skip = 0, take = rows.length] = numbers.map((text) =>
    text === '' ? undefined : Math.max(0, Number(text)),
  )
  const word = (query.get('search') ?? '').toLowerCase()
  const found = rows.filter((row) => Object.values(row).join('\n').toLowerCase().includes(word))
  return rowsResponse(request, query, found.slice(skip, skip + take), 'answered')
}

/** Rows in the format that the request asks for; `json` is what it gets as JSON, else the rows. */
export function rowsResponse(
  { headers }: FastifyRequest,
  query: URLSearchParams,
  rows: readonly Row[],
  outcome: string,
  json: unknown = rows,
): SandboxResponse {
  const format = chooseFormat(query.getAll('format'), headers['content-type'], headers.accept)
  if (format === null) return errorResponse(400, 'invalid_request', 'format must be JSON, XML, CSV or JSV.')
  const text = format === 'JSON' ? JSON.stringify(json) : render(rows, format)
  return withHeaders(textResponse(200, text, outcome), { 'content-type': contentTypeOf(format) })
}

function render(rows: readonly Row[], format: Exclude<Format, 'JSON'>): string {
  switch (format) {
    case 'CSV': {
      const lines = [Object.keys(rows[0] ?? {}), ...rows.map((row) => Object.values(row).map(csvText))]
      return `${lines.map((cells) => cells.join(',')).join('\r\n')}\r\n`
    }
    case 'JSV': {
      const members = (row: Row) => Object.entries(row).map(([name, value]) => `${name}:${jsvText(value)}`)
      return `[${rows.map((row) => `{${members(row).join(',')}}`).join(',')}]`
    }
    case 'XML': {
      const attributes = ({ wType, ...row }: Row) =>
        Object.entries(row).map(([name, value]) => ` ${name}="${escapeMarkup(String(value))}"`)
      const elements = rows.map((row) => `<${row.wType ?? 'Row'}${attributes(row).join('')}/>`)
      return `<?xml version="1.0" encoding="utf-8"?>\n<Rows>${elements.join('')}</Rows>\n`
    }
  }
}
