import { join } from 'node:path'
import { ROOT } from '../../repository/files.ts'
import type { Teardown } from '../child.ts'
import { makeFolder } from '../watchdog.ts'
import { createProgram, freeOrigin } from './program.ts'
import { CREDENTIALS, PASSWORD, type RealServer, withBearer } from './real-server.ts'

export const PACKAGES = ['django-oauth-toolkit==3.4.1', 'Django==5.2.19']

interface Options {
  /** The virtual environment. */
  readonly folder: string
  readonly callback: string
  /** `REFRESH_TOKEN_GRACE_PERIOD_SECONDS`. */
  readonly grace?: number
}

/** django-oauth-toolkit with its own views, on SQLite. */
export async function startDjango(
  t: Teardown,
  { folder, callback, grace = 0 }: Options,
): Promise<RealServer> {
  const data = makeFolder('django')
  const { origin, port } = await freeOrigin()
  const start = createProgram(t)
  const setLife = (seconds: number) =>
    start({
      command: join(folder, 'bin/python'),
      args: ['-B', join(ROOT, 'test/helpers/servers/django-server.py'), port],
      env: {
        ...{ FOLDER: data, LIFE: String(seconds), GRACE: String(grace) },
        ...{ ...CREDENTIALS, CALLBACK: callback, PASSWORD },
      },
      url: `${origin}/admin/login/`,
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
      if (!page.isBack)
        page = await visitor.submit(page, { button: accepts ? /name="allow"/ : /^(?!.*name="allow")/s })
      return page.isBack ? page.url : null
    },
    async withdraw(visitor) {
      const list = await visitor.go(`${origin}/o/authorized_tokens/`)
      for (const [, path] of list.text.matchAll(/href="([^"]*authorized_tokens\/\d+\/delete\/)"/g))
        await visitor.submit(await visitor.go(`${origin}${path}`))
    },
    setLife,
  }
}
