/** One member of an `Accept…` header, in lower case, and its weight from 0 to 1. */
export interface Weighted {
  readonly name: string
  readonly q: number
}

/** No browser names as many. To read all that fits into a head would cost ten times the response. */
const MOST_READ = 50

/** The first fifty members of an `Accept…` header, in their order (RFC 9110 section 12.4.2). A weight that is none counts as 0. */
export function weighted(header: string): Weighted[] {
  return header.toLowerCase().split(',', MOST_READ).map(readMember)
}

function readMember(text: string): Weighted {
  const [name = '', ...parameters] = text.split(';', MOST_READ).map((part) => part.trim())
  const weight = parameters.find((parameter) => parameter.startsWith('q='))
  const q = weight === undefined ? 1 : Number(weight.slice(2))
  return { name, q: q >= 0 && q <= 1 ? q : 0 }
}
