/** Long runs of the letters of base64url, which tokens consist of. */
const RUN = /[A-Za-z0-9_-]{32,}/g
/** The first byte of a packed text; no JSON begins with it. */
const PACKED = 1
const LENGTH_BYTES = 3

/**
 * A text in fewer bytes, for one that is kept in great number: in long runs of the letters of base64url four letters take
 * three bytes. Compression would save as much and take fifty times as long.
 */
export function packText(text: string): Buffer {
  const runs = [...text.matchAll(RUN)]
  const bytes = Buffer.allocUnsafe(1 + Buffer.byteLength(text) + (2 * runs.length + 1) * LENGTH_BYTES)
  bytes[0] = PACKED
  let at = 1
  let from = 0
  const add = (part: string, encoding: 'utf8' | 'base64url'): void => {
    const length = bytes.write(part, at + LENGTH_BYTES, encoding)
    at = bytes.writeUIntBE(length, at, LENGTH_BYTES) + length
  }
  for (const { 0: run, index } of runs) {
    const end = index + run.length - (run.length % 4)
    add(text.slice(from, index), 'utf8')
    add(text.slice(index, end), 'base64url')
    from = end
  }
  add(text.slice(from), 'utf8')
  return bytes.subarray(0, at)
}

/** The text of `packText`; other bytes are a text as they are. */
export function unpackText(bytes: Buffer): string {
  if (bytes[0] !== PACKED) return bytes.toString()
  let text = ''
  let isRun = false
  for (let at = 1; at < bytes.length; isRun = !isRun) {
    const start = at + LENGTH_BYTES
    at = start + bytes.readUIntBE(at, LENGTH_BYTES)
    text += bytes.toString(isRun ? 'base64url' : 'utf8', start, at)
  }
  return text
}
