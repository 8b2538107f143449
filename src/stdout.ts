import { constants, fstatSync, openSync, writeSync } from 'node:fs'
import { isatty } from 'node:tty'

/** Most bytes of lines that wait for the reader of stdout. */
const MAX_WAITING_BYTES = 8_000_000
/** Processes may share a pipe, which may split longer writes (POSIX: PIPE_BUF). */
const MAX_WRITE_BYTES = 4_096
/** How often a full pipe is tried again; and while the process ends. */
const RETRY_MS = 20
const END_RETRY_MS = 2
/** How long the end of the process waits for the reader. */
const MAX_END_MS = 1_000

/** Writes lines to a descriptor and never waits for its reader. */
export interface LineWriter {
  /** Takes a line with its line feed. It is written in this turn of the event loop, or when the reader goes on. */
  write(line: string): void
  /** How many lines were dropped so far: 8 MB waited, or the reader has gone. */
  dropped(): number
  /** `listener` receives, each time that lines flow again, how many were dropped before. */
  onFlow(listener: (lines: number) => void): void
  /** Writes all that waits, for at most a second. It blocks: for the end of the process. */
  end(): void
}

/**
 * A writer to this descriptor, which must be non-blocking unless it is a file. Lines of one turn of the event loop are
 * one write: a write costs more than building a line.
 */
export function createLineWriter(fd: number, maxEndMs = MAX_END_MS): LineWriter {
  /** Lines that are no write yet. */
  let turn = ''
  let turnBytes = 0
  let turnEnds = false
  const waiting: Buffer[] = []
  let waitingBytes = 0
  let retry: NodeJS.Timeout | undefined
  let hasReader = true
  let dropped = 0
  let told = 0
  let tell = (_lines: number): void => {}

  function endTurn(): void {
    turnEnds = false
    if (retry === undefined) writeOrRetry()
  }

  function writeOrRetry(): void {
    retry = undefined
    if (!writeAll()) retry = setTimeout(writeOrRetry, RETRY_MS).unref()
  }

  /** False if the reader takes no more for now. */
  function writeAll(): boolean {
    for (;;) {
      queueTurn()
      const bytes = waiting[0]
      if (bytes === undefined) {
        if (dropped === told || !hasReader) return true
        const lines = dropped - told
        told = dropped
        tell(lines)
        continue
      }
      try {
        release(bytes, writeSync(fd, bytes))
      } catch (error) {
        // Only a reader that has gone never comes back. A full disk may have room later, as a pipe has.
        if ((error as NodeJS.ErrnoException).code !== 'EPIPE') return false
        hasReader = false
        for (const lost of waiting.splice(0)) dropped += linesIn(lost.toString())
      }
    }
  }

  function queueTurn(): void {
    if (turn === '') return
    const text = turn
    const bytes = turnBytes
    turn = ''
    turnBytes = 0
    if (!hasReader || waitingBytes + bytes > MAX_WAITING_BYTES) {
      dropped += linesIn(text)
      return
    }
    waiting.push(Buffer.from(text))
    waitingBytes += bytes
  }

  function release(bytes: Buffer, written: number): void {
    waitingBytes -= written
    if (written === bytes.length) waiting.shift()
    else waiting[0] = bytes.subarray(written)
  }

  return {
    write(line) {
      const bytes = Buffer.byteLength(line)
      if (turnBytes + bytes > MAX_WRITE_BYTES) queueTurn()
      turn += line
      turnBytes += bytes
      if (!turnEnds) setImmediate(endTurn)
      turnEnds = true
    },
    dropped: () => dropped,
    onFlow(listener) {
      tell = listener
    },
    end() {
      clearTimeout(retry)
      const until = performance.now() + maxEndMs
      while (!writeAll() && performance.now() < until) pause(END_RETRY_MS)
    },
  }
}

function linesIn(text: string): number {
  return text.split('\n').length - 1
}

function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

let stdout: LineWriter | null = null

/** The one writer to stdout of this process. What waits at the end of the process is written then, whatever its cause. */
export function stdoutWriter(): LineWriter {
  if (stdout === null) {
    stdout = createLineWriter(openStdout())
    process.on('exit', stdout.end)
  }
  return stdout
}

/** How many log lines of this process were dropped. */
export function droppedLines(): number {
  return stdout?.dropped() ?? 0
}

/** A descriptor of stdout that does not block. A pipe or terminal is opened again: other processes share the flags of 1. */
function openStdout(): number {
  if (fstatSync(1).isFIFO() || isatty(1)) {
    try {
      return openSync('/dev/stdout', constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
    } catch {
      // It belongs to another user.
    }
  }
  // Node makes pipes and sockets non-blocking when it is asked for the stream.
  return process.stdout.fd
}
