import t from 'tap'
import { listenFailure } from '../../src/process/listen.ts'

const LISTEN = { host: 'app.test', port: 3000, opsPort: 9464 }

t.test('a server that cannot listen names the variable to change', async (t) => {
  const notOfThisMachine = ['ENOTFOUND', 'EAI_AGAIN', 'EADDRNOTAVAIL', 'EAFNOSUPPORT']
  for (const code of notOfThisMachine)
    t.equal(
      listenFailure({ code, message: 'listen' }, LISTEN),
      `HOST: app.test is not an address of this machine (${code})`,
    )
  for (const [code, port, says] of [
    ['EADDRINUSE', 3000, 'PORT: port 3000 is in use by another process (EADDRINUSE)'],
    ['EADDRINUSE', 9464, 'OPS_PORT: port 9464 is in use by another process (EADDRINUSE)'],
    ['EACCES', 3000, 'PORT: port 3000 needs rights that this process lacks (EACCES)'],
    ['EMFILE', 3000, 'too many open files'],
  ] as const)
    t.equal(listenFailure({ code, port, message: 'too many open files' }, LISTEN), says)
})
