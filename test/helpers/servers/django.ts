import { join } from 'node:path'
import { ROOT } from '../../repository/files.ts'
import type { Teardown } from '../child.ts'
import { startApplication } from './application.ts'
import { decideByForms, PASSWORD, type RealServer } from './real-server.ts'

export const PACKAGES = ['django-oauth-toolkit==3.4.1', 'Django==5.2.19']

/** django-oauth-toolkit with its own views, on SQLite: each transaction begins with the write lock. */
export async function startDjango(t: Teardown, folder: string, callback: string): Promise<RealServer> {
  const application = await startApplication(t, {
    callback,
    signIn: '/admin/login/',
    program: (port) => ({
      command: join(folder, 'bin/python'),
      args: ['-B', join(ROOT, 'test/helpers/servers/django-server.py'), port],
      env: {},
    }),
  })
  const { origin } = application
  return {
    ...application,
    decide: decideByForms({
      signIn: (account) => ({ values: { username: account, password: PASSWORD } }),
      choose: (accepts) => ({ button: accepts ? /name="allow"/ : /^(?!.*name="allow")/s }),
    }),
    async withdraw(visitor) {
      const list = await visitor.go(`${origin}/o/authorized_tokens/`)
      for (const [, path] of list.text.matchAll(/href="([^"]*authorized_tokens\/\d+\/delete\/)"/g))
        await visitor.submit(await visitor.go(`${origin}${path}`))
    },
  }
}
