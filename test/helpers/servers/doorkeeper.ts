import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../../repository/files.ts'
import type { Teardown } from '../child.ts'
import { makeFolder } from '../watchdog.ts'
import { debianEnv } from './packages.ts'
import { createProgram, freeOrigin } from './program.ts'
import { CREDENTIALS, PASSWORD, type RealServer, withBearer } from './real-server.ts'

export const PACKAGES = ['ruby-doorkeeper', 'ruby-rails', 'ruby-sqlite3', 'puma']

/** Doorkeeper in a small Rails application, on SQLite. */
export async function startDoorkeeper(t: Teardown, root: string, callback: string): Promise<RealServer> {
  const folder = makeFolder('doorkeeper')
  for (const name of ['log', 'tmp', 'config']) mkdirSync(join(folder, name))
  const { origin, port } = await freeOrigin()
  const start = createProgram(t)
  const setLife = (seconds: number) =>
    start({
      command: 'ruby',
      args: [
        join(root, 'usr/bin/puma'),
        '-t',
        '1:8',
        '-b',
        `tcp://127.0.0.1:${port}`,
        join(ROOT, 'test/helpers/servers/doorkeeper.ru'),
      ],
      cwd: folder,
      env: {
        ...debianEnv(root),
        ...{ RAILS_ENV: 'production', FOLDER: folder, LIFE: String(seconds) },
        ...{ ...CREDENTIALS, CALLBACK: callback, PASSWORD },
      },
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
        page = await visitor.submit(page, { values: { user: account, password: PASSWORD } })
      // It does not ask again for scopes of which the user has a token.
      if (!page.isBack)
        page = await visitor.submit(page, { form: accepts ? /^(?!.*value="delete")/is : /value="delete"/i })
      return page.isBack ? page.url : null
    },
    async withdraw(visitor) {
      await visitor.submit(await visitor.go(`${origin}/oauth/authorized_applications`))
    },
    setLife,
  }
}
