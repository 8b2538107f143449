import { join } from 'node:path'
import { ROOT } from '../../repository/files.ts'
import type { Teardown } from '../child.ts'
import { startApplication } from './application.ts'
import { decideByForms, PASSWORD, type RealServer } from './real-server.ts'

export const PACKAGES = [
  'Authlib==1.9.6',
  'Flask==3.1.3',
  'Flask-SQLAlchemy==3.1.1',
  'SQLAlchemy==2.1.9',
  'requests',
]

/** An application around Authlib. */
export async function startAuthlib(t: Teardown, folder: string, callback: string): Promise<RealServer> {
  const application = await startApplication(t, {
    callback,
    signIn: '/login',
    program: (port) => ({
      command: join(folder, 'bin/python'),
      args: ['-B', join(ROOT, 'test/helpers/servers/authlib-server.py'), port],
      env: {},
    }),
  })
  return {
    ...application,
    decide: decideByForms({
      signIn: (account) => ({ values: { username: account, password: PASSWORD } }),
      choose: (accepts) => ({ button: accepts ? /value="yes"/ : /value=""/ }),
    }),
    async withdraw() {
      await fetch(`${application.origin}/withdraw/alice`, { method: 'POST' })
    },
  }
}
