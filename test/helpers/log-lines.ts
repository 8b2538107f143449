// The lines of a log, parsed.

import { Writable } from 'node:stream'

export type LogLine = Record<string, unknown>

/** The lines of this text; with an event, those of it alone. */
export function logLines(text: string, event?: string): LogLine[] {
  const lines = text.split('\n').filter((line) => line !== '')
  const parsed = lines.map((line) => JSON.parse(line) as LogLine)
  return event === undefined ? parsed : parsed.filter((line) => line.event === event)
}

/** A stream for a log, and the lines that it has received. */
export function collectLog() {
  let text = ''
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      text += chunk
      done()
    },
  })
  return { sink, text: () => text, lines: (event?: string) => logLines(text, event) }
}
