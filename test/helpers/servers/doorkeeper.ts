import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../../repository/files.ts'
import type { Teardown } from '../child.ts'
import { startApplication } from './application.ts'
import { debianEnv } from './packages.ts'
import { decideByForms, PASSWORD, type RealServer } from './real-server.ts'

export const PACKAGES = ['ruby-doorkeeper', 'ruby-rails', 'ruby-sqlite3', 'puma']

/** Doorkeeper in a small Rails application. */
export async function startDoorkeeper(t: Teardown, root: string, callback: string): Promise<RealServer> {
  const application = await startApplication(t, {
    callback,
    signIn: '/login',
    program(port, data) {
      for (const name of ['log', 'tmp', 'config']) mkdirSync(join(data, name))
      return {
        command: 'ruby',
        args: [
          ...[join(root, 'usr/bin/puma'), '-t', '1:8', '-b', `tcp://127.0.0.1:${port}`],
          join(ROOT, 'test/helpers/servers/doorkeeper.ru'),
        ],
        cwd: data,
        env: { ...debianEnv(root), RAILS_ENV: 'production' },
      }
    },
  })
  return {
    ...application,
    decide: decideByForms({
      signIn: (account) => ({ values: { user: account, password: PASSWORD } }),
      // It does not ask again for scopes of which the user has a token.
      choose: (accepts) => ({ form: accepts ? /^(?!.*value="delete")/is : /value="delete"/i }),
    }),
    async withdraw(visitor) {
      await visitor.submit(await visitor.go(`${application.origin}/oauth/authorized_applications`))
    },
  }
}
