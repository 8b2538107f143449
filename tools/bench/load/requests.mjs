// What both load generators of Node share: prepared requests, and a parser of responses.
import { readFileSync } from 'node:fs'

/** The requests of a file, ready to send: one a line, path, tab, Cookie header, which may be empty. */
export function prepareRequests({ file, port, headers }) {
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean)
  return lines.map((line) => {
    const [path, cookie] = line.split('\t')
    const fields = { host: `127.0.0.1:${port}`, ...headers, ...(cookie === '' ? {} : { cookie }) }
    const sent = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`)
    return Buffer.from(`GET ${path} HTTP/1.1\r\n${sent.join('')}\r\n`)
  })
}

/**
 * Parses the chunks of one connection. Calls `onResponse(status, closes)` with the last chunk of each response;
 * `closes`: the server ends the connection after it.
 */
export function createReader(onResponse) {
  let head = ''
  let status = 0
  let closes = false
  let missing = -1
  let chunked = false
  let tail = ''
  return (part) => {
    let bytes = part.length
    if (missing < 0 && !chunked) {
      const before = head.length
      head += part.latin1Slice()
      const end = head.indexOf('\r\n\r\n')
      if (end < 0) return
      status = Number(head.slice(9, 12))
      const fields = head.slice(0, end + 2)
      const length = /\r\ncontent-length: *(\d+)/i.exec(fields)
      closes = /\r\nconnection: *close\r\n/i.test(fields)
      chunked = length === null
      missing = chunked ? -1 : Number(length[1])
      tail = head.slice(end + 4)
      bytes = before + part.length - (end + 4)
    } else if (chunked) tail = (tail + part.latin1Slice()).slice(-7)
    if (!chunked) missing -= bytes
    const whole = chunked ? tail.endsWith('0\r\n\r\n') : missing <= 0
    if (!whole) return
    head = ''
    tail = ''
    missing = -1
    chunked = false
    onResponse(status, closes)
  }
}
