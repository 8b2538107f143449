import { join } from 'node:path'
import { ROOT } from '../../repository/files.ts'
import type { Teardown } from '../child.ts'
import { startApplication } from './application.ts'
import { decideByForms, PASSWORD, type RealServer } from './real-server.ts'

const within = (name: string) => join(ROOT, 'test/helpers/servers', name)

export const POM = within('spring-server.xml')

/** Spring Authorization Server with its own pages. */
export async function startSpring(t: Teardown, folder: string, callback: string): Promise<RealServer> {
  const application = await startApplication(t, {
    callback,
    signIn: '/login',
    program: (port) => ({
      command: 'java',
      args: ['-XX:TieredStopAtLevel=1', '-cp', join(folder, '*'), within('spring-server.java'), port],
      env: { PATH: process.env.PATH ?? '' },
    }),
  })
  return {
    ...application,
    decide: decideByForms({
      signIn: (account) => ({ values: { username: account, password: PASSWORD } }),
      choose: (accepts) => ({ values: accepts ? { scope: 'read' } : {} }),
    }),
    async withdraw() {
      await fetch(`${application.origin}/withdraw/alice`, { method: 'POST' })
    },
  }
}
