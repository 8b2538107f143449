import { createServer } from 'node:net'
import t from 'tap'
import type { Teardown } from '../helpers/child.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { SESSION_SECRET, sessions } from './run.ts'

/** Sets the title, hides what follows, and begins a line that looks like one of the command. */
const ESCAPES = '\x1b]0;owned\x07\x1b[8m\x9b2K\u202e\nended 7'

/** Port of a server that speaks like Redis and answers each command as told. */
async function startImpostor(t: Teardown, answer: (command: string) => string): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.on('data', (data) => {
      for (const [, command = ''] of data.toString().matchAll(/^\*\d+\r\n\$\d+\r\n(\w+)/gm)) {
        socket.write(`${answer(command.toLowerCase())}\r\n`)
      }
    })
  })
  return await listenOnLoopback(t, server)
}

/** What the impostor answers, and commands that read it: those before a connection is made all fail alike. */
const IMPOSTORS: [what: string, commands: string[], answer: (command: string) => string][] = [
  ['refuses every command', ['list'], () => `-ERR ${ESCAPES}`],
  ['refuses the credentials', ['list'], () => `-WRONGPASS ${ESCAPES}`],
  ['permits nothing', ['list'], () => `-NOPERM ${ESCAPES}`],
  [
    'fails after the connection is made',
    ['list', `end ${'a'.repeat(64)}`, 'end-all --yes'],
    (command) => (command === 'ping' ? '+PONG' : `-NOPERM ${ESCAPES}`),
  ],
]

for (const [what, commands, answer] of IMPOSTORS) {
  t.test(`error texts of a Redis that ${what} cannot control the operator's terminal`, async (t) => {
    const port = await startImpostor(t, answer)
    const env = { REDIS_URL: `redis://127.0.0.1:${port}`, SESSION_SECRET }
    for (const line of commands) {
      const { code, lines, stderr } = await sessions(t, env, ...line.split(' '))
      const printed = [...lines, stderr].join('\n')
      t.equal(code, 1, line)
      t.match(printed, 'owned', 'the text is shown')
      t.match(printed, /^[\x20-\x7e\n]*$/, 'in visible ASCII')
      t.notMatch(printed, /^ended [^0]/m, 'and begins no line')
    }
  })
}
