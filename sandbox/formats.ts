/** The four formats of document sections 4.2 and 5.6, and the media types that they are known by. */
const FORMATS = {
  JSON: { contentType: 'application/json; charset=utf-8', known: ['application/json'] },
  XML: { contentType: 'application/xml; charset=utf-8', known: ['application/xml', 'text/xml'] },
  CSV: { contentType: 'text/csv; charset=utf-8', known: ['text/csv'] },
  JSV: { contentType: 'text/jsv; charset=utf-8', known: ['text/jsv', 'application/jsv'] },
} as const

export type Format = keyof typeof FORMATS

/** The `Content-Type` of this format. */
export function contentTypeOf(format: Format): string {
  return FORMATS[format].contentType
}

/**
 * The format of a response: the `format` parameter, else `Content-Type`, else `Accept` (in its order,
 * without weights), else JSON. Null: the parameter names no format, or stands there twice.
 */
export function chooseFormat(
  parameters: readonly string[],
  contentType: string | undefined,
  accept: string | undefined,
): Format | null {
  if (parameters.length > 1) return null
  const [parameter] = parameters
  if (parameter !== undefined) {
    const name = parameter.toUpperCase()
    return Object.hasOwn(FORMATS, name) ? (name as Format) : null
  }
  return formatOf(contentType) ?? accept?.split(',').map(formatOf).find(Boolean) ?? 'JSON'
}

function formatOf(mediaType: string | undefined): Format | undefined {
  const essence = mediaType?.split(';')[0]?.trim().toLowerCase()
  const names = Object.keys(FORMATS) as Format[]
  return names.find((name) => FORMATS[name].known.some((known) => known === essence))
}

/** A value of CSV, quoted where it has to be (RFC 4180). */
export function csvText(value: string | number): string {
  return quotedWhere(/[",\r\n]/, String(value))
}

/** A value of JSV, ServiceStack's text format: like JSON without the quotes that a value does not need. */
export function jsvText(value: string | number): string {
  return quotedWhere(/[",{}[\]\r\n]/, String(value))
}

function quotedWhere(pattern: RegExp, text: string): string {
  return pattern.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
