// What reads stdout is a real pipe, socket, file or terminal. A reader that stalls is a pipe that this process does not read.

import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync } from 'node:fs'
import { Socket } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { build } from 'esbuild'
import t, { type Test } from 'tap'
import { startChild } from './helpers/child.ts'
import { logLines } from './helpers/log-lines.ts'
import { freePort } from './helpers/ports.ts'
import { SERVER_ENV } from './helpers/server-process.ts'
import { until } from './helpers/wait.ts'
import { guard, makeFolder } from './helpers/watchdog.ts'

/** URL of the log as a module for child processes, in a folder that finds the packages. */
async function buildLog(): Promise<string> {
  const outfile = `.tap/log-${process.pid}.mjs`
  await build({
    stdin: {
      contents: "export * from './src/log.ts'; export * from './src/stdout.ts'",
      resolveDir: process.cwd(),
    },
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'node',
    packages: 'external',
  })
  return pathToFileURL(outfile).href
}

let log = ''
t.before(async () => {
  log = await buildLog()
})

/** A program that logs: `node ${nodeArgs(code)}`. */
function nodeArgs(code: string): string[] {
  const imports = `import { createLog, createLineWriter, droppedLines } from '${log}'\n`
  return ['--input-type=module', '--eval', imports + code]
}

/** A Node process whose stdout is a pipe (not a socket, as Node makes them) that is read when the test says so. */
function startPiped(t: Test, args: readonly string[], env: Record<string, string> = {}) {
  const fifo = join(makeFolder('stdout'), 'pipe')
  execFileSync('mkfifo', [fifo])
  const readEnd = openSync(fifo, constants.O_RDONLY | constants.O_NONBLOCK)
  const writeEnd = openSync(fifo, constants.O_WRONLY)
  const child = spawn(process.execPath, args, {
    stdio: ['pipe', writeEnd, 'pipe'],
    env: { PATH: process.env.PATH ?? '', ...env },
  })
  closeSync(writeEnd)
  guard(child)
  t.teardown(() => child.kill('SIGKILL'))
  let text = ''
  const reader = new Socket({ fd: readEnd, readable: true, writable: false })
  const readToEnd = once(reader, 'end')
  let stderr = ''
  child.stderr!.setEncoding('utf8').on('data', (more: string) => (stderr += more))
  return {
    child,
    read: () => reader.setEncoding('utf8').on('data', (more: string) => (text += more)),
    stopReading: () => reader.pause(),
    readAgain: () => reader.resume(),
    ended: once(child, 'exit') as Promise<[number | null, string | null]>,
    readToEnd,
    lines: (event?: string) => logLines(text.slice(0, text.lastIndexOf('\n') + 1), event),
    stderr: () => stderr,
  }
}

async function told({ stderr, child }: { stderr: () => string; child: ChildProcess }, text: string) {
  await until(`${text} on stderr`, () => {
    if (child.exitCode !== null) throw new Error(`it ended:\n${stderr()}`)
    return stderr().includes(text)
  })
}

const numbers = (count: number) => Array.from({ length: count }, (_, at) => at)

t.test('the last lines are written, whatever ends the process and whatever reads them', async (t) => {
  const ends = {
    'its own exit': 'process.exit(3)',
    'an uncaught error': "throw new Error('nobody foresaw this')",
    'an error in a promise': "await Promise.reject(new Error('nor this'))",
    'the end of its work': '',
  }
  const file = join(makeFolder('stdout'), 'file')
  const [node, shell] = [process.execPath, '/bin/sh']
  const readers: Record<string, (args: string[]) => [string, string[]]> = {
    'a socket': (args) => [node, args],
    'a pipe': (args) => [shell, ['-c', '"$0" "$@" | cat', node, ...args]],
    'a file': (args) => [shell, ['-c', `"$0" "$@" > ${file}; cat ${file}`, node, ...args]],
    'a terminal': (args) => ['script', ['-qec', [node, ...args].map(quoted).join(' '), '/dev/null']],
  }
  for (const [reader, command] of Object.entries(readers)) {
    for (const [name, end] of Object.entries(ends)) {
      const code = `const log = createLog('info')
        for (let line = 0; line < 200; line += 1) log.info({ line })
        ${end}`
      const child = startChild(t, ...command(nodeArgs(code)))
      await child.ended
      // A terminal shows stderr too.
      const lines = child
        .stdout()
        .split(/\r?\n/)
        .filter((text) => text.startsWith('{"level"'))
      t.strictSame(
        lines.map((text) => (JSON.parse(text) as { line: number }).line),
        numbers(200),
        `${name}, read by ${reader}`,
      )
    }
  }
})

/** For a command line of sh. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}

t.test('what waits at the end of the process is written while it is read', async (t) => {
  const code = `import { writeSync, openSync, constants } from 'node:fs'
    const fd = openSync('/dev/stdout', constants.O_WRONLY | constants.O_NONBLOCK)
    // The machine may be slow: longer than a second.
    const writer = createLineWriter(fd, 600_000)
    process.on('exit', writer.end)
    for (let line = 0; line < 3_000; line += 1) writer.write(JSON.stringify({ line, text: 'x'.repeat(1_000) }) + '\\n')
    await new Promise(setImmediate)
    process.stderr.write('ending')
    process.exit(4)`
  const piped = startPiped(t, nodeArgs(code))
  await told(piped, 'ending')
  piped.read()
  await piped.readToEnd
  t.strictSame(await piped.ended, [4, null])
  t.strictSame(
    piped.lines().map(({ line }) => line),
    numbers(3_000),
  )
})

t.test('a process whose stdout nobody reads ends all the same', async (t) => {
  const code = `const log = createLog('info')
    for (let line = 0; line < 3_000; line += 1) log.info({ text: 'x'.repeat(1_000) })
    await new Promise(setImmediate)
    process.exit(4)`
  const piped = startPiped(t, nodeArgs(code))
  t.strictSame(await piped.ended, [4, null])
  const full = `exec "$0" "$@" > /dev/full`
  const child = startChild(t, '/bin/sh', ['-c', full, process.execPath, ...nodeArgs(code)])
  t.equal((await child.ended).code, 4, 'nor is there room on its disk')
  const gone = `{ "$0" "$@"; echo $? >&2; } | true`
  const unread = startChild(t, '/bin/sh', ['-c', gone, process.execPath, ...nodeArgs(code)])
  await unread.ended
  t.equal(unread.stderr(), '4\n', 'its reader has gone')
})

t.test(
  '8 MB of lines wait for a reader that stalls, and one warning says how many were dropped',
  async (t) => {
    const sent = 1_200
    const code = `const log = createLog('info')
    const text = 'x'.repeat(9_000)
    for (let line = 0; line < ${sent}; line += 1) {
      log.info({ line, text })
      if (line % 100 === 0) await new Promise(setImmediate)
    }
    await new Promise(setImmediate)
    process.stderr.write('stalled')
    process.stdin.once('data', () => {
      log.info({ event: 'later' })
      process.stderr.write('dropped ' + droppedLines() + '.')
      process.exit()
    })`
    const piped = startPiped(t, nodeArgs(code))
    await told(piped, 'stalled')
    piped.read()
    await until('log.dropped', () => piped.lines('log.dropped').length > 0)
    const dropped = Number(piped.lines('log.dropped')[0]?.lines)
    const kept = sent - dropped
    t.ok(kept * 9_000 < 8_100_000, `${kept} lines waited or were in the pipe`)
    t.ok(kept * 9_200 > 7_900_000)
    piped.child.stdin!.write('go on')
    await piped.readToEnd
    const lines = piped.lines()
    t.strictSame(
      lines.slice(0, kept).map(({ line }) => line),
      numbers(kept),
    )
    t.match(
      lines.slice(kept).map(({ event }) => event),
      ['log.dropped', 'later'],
    )
    t.match(piped.stderr(), `dropped ${dropped}`, 'the metric says the same')
  },
)

t.test('a reader of stdout that stalls holds no request', async (t) => {
  const opsUrl = `http://127.0.0.1:${await freePort()}`
  const server = startPiped(t, [join(process.cwd(), 'dist/main.js')], {
    ...SERVER_ENV,
    PORT: '0',
    OPS_PORT: new URL(opsUrl).port,
    PUBLIC_URL: 'http://localhost:3000',
  })
  server.read()
  await until('listening', () => server.lines('listening').length > 0)
  server.stopReading()
  const { url } = server.lines('listening')[0]!
  // A pipe and the buffers of this process take about 500.
  const requests = 1_500
  for (let at = 0; at < requests; at += 50) {
    const statuses = await Promise.all(
      numbers(50).map(async (one) => (await fetch(`${url}/${'x'.repeat(150)}-${at + one}`)).status),
    )
    if (statuses.some((status) => status !== 404)) t.strictSame(statuses, numbers(50).fill(404))
  }
  t.match(await (await fetch(`${opsUrl}/metrics`)).text(), /^bff_log_lines_dropped_total 0$/m)
  server.readAgain()
  await until('all lines', () => server.lines('request').length >= requests)
  server.child.kill('SIGTERM')
  await server.readToEnd
  t.strictSame(await server.ended, [0, null])
  t.equal(server.lines('request').length, requests)
  t.match(server.lines().at(-1), { event: 'stopped' })
})

t.test('lines of one turn are written together, in pieces that no other process splits', async (t) => {
  const code = `import fs from 'node:fs'
    import { syncBuiltinESMExports } from 'node:module'
    const write = fs.writeSync
    fs.writeSync = (fd, text, ...rest) => {
      process.stderr.write(Buffer.byteLength(text) + '\\n')
      return write(fd, text, ...rest)
    }
    syncBuiltinESMExports()
    const log = createLog('info')
    for (let line = 0; line < 100; line += 1) log.info({ line, name: 'ü'.repeat(20) })`
  const child = startChild(t, process.execPath, nodeArgs(code))
  await child.ended
  const writes = child.stderr().trim().split('\n').map(Number)
  t.ok(writes.length > 1)
  t.ok(writes.length < 10)
  t.ok(Math.max(...writes) <= 4_096)
  t.equal(logLines(child.stdout()).length, 100)
})
