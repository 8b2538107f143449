// Starts child processes for a test, collects their output and kills them at its end.

import { spawn } from 'node:child_process'
import { findTool, type Tool } from '../setup/tools.mjs'
import { PATIENCE_MS } from './wait.ts'
import { guard } from './watchdog.ts'

/** What a helper needs of tap's `t`. */
export interface Teardown {
  teardown(handler: () => unknown): unknown
}

export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** The path of a program that `npm test` has installed or found. */
export function toolPath(tool: Tool): string {
  const path = findTool(tool)
  if (path === null) throw new Error(`${tool} is not installed: run the tests through npm test`)
  return path
}

/** A child process of a test. */
export type Child = ReturnType<typeof startChild>

interface ChildOptions {
  /** The complete environment. Nothing is inherited. */
  readonly env?: Record<string, string>
  readonly cwd?: string
}

/** Starts a program. It is killed when the test ends or the test process dies. */
export function startChild(
  t: Teardown,
  command: string,
  args: readonly string[],
  options: ChildOptions = {},
) {
  const child = spawn(command, args, {
    cwd: options.cwd,
    env: options.env ?? { PATH: process.env.PATH ?? '' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  guard(child)
  const texts = { stdout: '', stderr: '', both: '' }
  const listeners = new Set<() => void>()
  const notify = () => {
    for (const listener of [...listeners]) listener()
  }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (text: string) => {
      texts[name] += text
      texts.both += text
      notify()
    })
  }

  let over = false
  const ended = new Promise<Ended>((resolve) => {
    child.once('error', (error) => {
      texts.both += String(error)
      over = true
      resolve({ code: null, signal: null })
    })
    // 'close' instead of 'exit': all output has been read by then.
    child.once('close', (code, signal) => {
      over = true
      resolve({ code, signal })
    })
  }).finally(notify)

  const send = (signal: NodeJS.Signals): void => {
    if (!over) child.kill(signal)
  }
  /** Sends the signal and waits for the end. Kills a process that ignores it, and then throws. */
  const stop = async (signal: NodeJS.Signals = 'SIGTERM'): Promise<Ended> => {
    send(signal)
    let late = false
    const timer = setTimeout(() => {
      late = true
      send('SIGKILL')
    }, PATIENCE_MS)
    const result = await ended
    clearTimeout(timer)
    if (late) throw new Error(`${command} ignored ${signal} for ${PATIENCE_MS / 1000} s\n${texts.both}`)
    return result
  }
  t.teardown(() => {
    send('SIGCONT')
    send('SIGKILL')
    return ended
  })

  return {
    pid: child.pid ?? -1,
    ended,
    hasEnded: () => over,
    stdout: () => texts.stdout,
    stderr: () => texts.stderr,
    /** Standard output and standard error, in order of arrival. */
    output: () => texts.both,
    /** Calls `listener` after each chunk of output and once at the end, until the returned function is called. */
    onOutput(listener: () => void) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    send,
    stop,
  }
}

/**
 * Resolves with the first result of `read` over the child's output that is not null. Null: the child ended first.
 * Throws, with the output, after `milliseconds`.
 */
export async function waitForOutput<T>(
  child: Child,
  read: (output: string) => T | null,
  milliseconds = PATIENCE_MS,
): Promise<T | null> {
  return await new Promise<T | null>((resolve, reject) => {
    const look = () => {
      const found = read(child.output())
      if (found === null && !child.hasEnded()) return
      clearTimeout(timer)
      off()
      resolve(found)
    }
    const off = child.onOutput(look)
    const timer = setTimeout(() => {
      off()
      reject(new Error(`no expected output within ${milliseconds} ms; the output was:\n${child.output()}`))
    }, milliseconds)
    look()
  })
}
