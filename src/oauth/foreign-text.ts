/** Text of another server as a log may show it: one line of visible ASCII, of at most this length. */
const MAX_LENGTH = 200
const HIDDEN = '***'
/** A shorter text says nothing of a secret, and would be replaced in every word that holds it. */
const MIN_SECRET_LENGTH = 4

/** `text` as part of a log line, with these secrets replaced in each form in which a server may repeat them. */
export function quoteForeign(text: string, secrets: Iterable<string>): string {
  return hideForms(text, [...secrets].flatMap(formsOf))
    .replace(/\s+/g, ' ')
    .trim()
    .replace(/[^\x20-\x7e]/g, '?')
    .slice(0, MAX_LENGTH)
}

/** `text` with each of `forms`, as `formsOf` gives them, replaced. */
export function hideForms(text: string, forms: Iterable<string>): string {
  // Long ones first: one may be part of another.
  const longest = [...forms].sort((one, other) => other.length - one.length)
  return longest.reduce((left, form) => left.replaceAll(form, HIDDEN), text)
}

/** A secret as it is, percent-encoded, and in base64 at each of the three places where it may begin. */
export function formsOf(secret: string): string[] {
  if (secret.length < MIN_SECRET_LENGTH) return []
  // A user name may hold half a surrogate pair, which throws here and is sent as U+FFFD.
  const encoded = encodeURIComponent(secret.replace(/\p{Cs}/gu, '\ufffd'))
  const form = new URLSearchParams({ x: secret }).toString().slice(2)
  const bytes = Buffer.from(secret)
  const base64 = [0, 1, 2].map((before) => {
    const whole = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64')
    // The first and the last characters also hold bits of what stands beside the text.
    const from = Math.ceil((before * 4) / 3)
    const to = Math.floor(((before + bytes.length) * 4) / 3)
    return whole.slice(from, to)
  })
  const lower = (value: string): string => value.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase())
  return [secret, encoded, lower(encoded), form, lower(form), ...base64, ...base64.map(toUrl)].filter(
    (each) => each.length >= MIN_SECRET_LENGTH,
  )
}

function toUrl(base64: string): string {
  return base64.replaceAll('+', '-').replaceAll('/', '_')
}
