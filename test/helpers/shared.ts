// Servers that tests of one process share: to start one costs more than most tests that call it.

import t from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { portOfUrl } from './ports.ts'
import { type Bff, signInSurely, startBff, startSandbox } from './system.ts'

type Options = NonNullable<Parameters<typeof startSandbox>[1]>

const sandboxes = new Map<string, Promise<Sandbox>>()
const servers = new Map<string, Promise<Bff>>()

/**
 * The server with this environment and its sandbox, without faults and with an empty journal. A test that restarts one,
 * changes its clock, counts its metrics or issues tokens of a short life starts its own.
 */
export async function shared(env: Record<string, string> = {}, options: Options = {}) {
  const key = JSON.stringify(options)
  const sandbox = await once(sandboxes, key, () => startSandbox(t, options))
  const bff = await once(servers, `${JSON.stringify(env)} ${key}`, () =>
    // All sign-ins come from one address.
    startBff(t, sandbox, { LOGIN_RATE_PER_MINUTE: '0', ...env }),
  )
  sandbox.faults.reset()
  sandbox.journal.clear()
  const logged = bff.log().length
  return {
    sandbox,
    port: portOfUrl(bff.publicUrl),
    bff: { ...bff, log: () => bff.log().slice(logged) },
  }
}

/** As `shared`, with a browser that has just signed in, and its session as a header of another client. */
export async function signedIn(env: Record<string, string> = {}, options: Options = {}) {
  const system = await shared(env, options)
  const browser = system.bff.browser()
  await signInSurely(browser, system.sandbox)
  system.sandbox.journal.clear()
  return {
    ...system,
    browser,
    cookie: ['Cookie', `session=${browser.cookies.get('session')!.value}`] as const,
  }
}

function once<T>(made: Map<string, Promise<T>>, key: string, make: () => Promise<T>): Promise<T> {
  const value = made.get(key) ?? make()
  made.set(key, value)
  return value
}
