// Kills child processes and removes folders if the test process is killed.

import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Writable } from 'node:stream'

// Teardown and 'exit' handlers do not run in a test process that is killed (tap's own timeout does
// that). So a shell outlives it. It receives each process id over a pipe. When the pipe closes, for
// whatever reason, it kills the remaining processes and removes the folder.
const SCRIPT = `
alive=
while read -r sign pid; do
  if [ "$sign" = + ]; then alive="$alive $pid"; continue; fi
  rest=
  for p in $alive; do [ "$p" = "$pid" ] || rest="$rest $p"; done
  alive=$rest
done
for p in $alive; do kill -CONT "$p"; kill -KILL "$p"; done 2>/dev/null
rm -rf "$1"
`

let pipe: Writable | null = null
let root = ''

/** Ends this child if the test process dies before it does. */
export function guard(child: ChildProcess): void {
  const { pid } = child
  if (pid === undefined) return
  const watchdog = start()
  watchdog.write(`+ ${pid}\n`)
  child.once('exit', () => watchdog.write(`- ${pid}\n`))
}

/** A new empty folder that is removed when the test process ends. */
export function makeFolder(name: string): string {
  start()
  return mkdtempSync(join(root, `${name}-`))
}

function start(): Writable {
  if (pipe !== null) return pipe
  root = mkdtempSync(join(tmpdir(), 'bff-test-'))
  // Detached: a Ctrl-C at the terminal must reach the tests, but not this shell, which cleans up after them.
  const shell = spawn('sh', ['-c', SCRIPT, 'watchdog', root], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  shell.unref()
  pipe = shell.stdin
  pipe.on('error', () => {})
  ;(pipe as Writable & { unref?: () => void }).unref?.()
  return pipe
}
