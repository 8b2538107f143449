import { join } from 'node:path'
import { ROOT } from '../../repository/files.ts'
import type { Teardown } from '../child.ts'
import { makeFolder } from '../watchdog.ts'
import { createProgram, freeOrigin } from './program.ts'
import { CREDENTIALS, PASSWORD, type RealServer, withBearer } from './real-server.ts'

export const PACKAGES = [
  'Authlib==1.9.6',
  'Flask==3.1.3',
  'Flask-SQLAlchemy==3.1.1',
  'SQLAlchemy==2.1.9',
  'requests',
]

/** An application around Authlib, on SQLite. */
export async function startAuthlib(t: Teardown, folder: string, callback: string): Promise<RealServer> {
  const data = makeFolder('authlib')
  const { origin, port } = await freeOrigin()
  const start = createProgram(t)
  const setLife = (seconds: number) =>
    start({
      command: join(folder, 'bin/python'),
      args: ['-B', join(ROOT, 'test/helpers/servers/authlib-server.py'), port],
      env: { FOLDER: data, LIFE: String(seconds), ...CREDENTIALS, CALLBACK: callback, PASSWORD },
      url: `${origin}/login`,
    })
  await setLife(600)
  return {
    origin,
    env: CREDENTIALS,
    accounts: ['alice', 'bob'],
    guard: withBearer(`${origin}/data`),
    async decide(visitor, authorizeUrl, { account, accepts }) {
      let page = await visitor.go(authorizeUrl)
      if (page.text.includes('name="password"'))
        page = await visitor.submit(page, { values: { username: account, password: PASSWORD } })
      if (!page.isBack) page = await visitor.submit(page, { button: accepts ? /value="yes"/ : /value=""/ })
      return page.isBack ? page.url : null
    },
    async withdraw() {
      await fetch(`${origin}/withdraw/alice`, { method: 'POST' })
    },
    setLife,
  }
}
