import type { Faults } from '../../../sandbox/faults.ts'
import type { Profile } from '../../../sandbox/profile.ts'
import type { Teardown } from '../child.ts'
import { freePort } from '../ports.ts'
import { CLIENT, platformEnv, startBff, startSandbox } from '../system.ts'

interface Options {
  readonly faults?: Partial<Faults>
  readonly env?: Readonly<Record<string, string>>
}

/** A sandbox that answers as the server of this profile does, and the environment that it advises. */
export async function startProfile(t: Teardown, profile: Profile, { faults = {}, env = {} }: Options = {}) {
  const port = await freePort()
  const publicUrl = `http://localhost:${port}`
  const client = { ...CLIENT, callback: `${publicUrl}/auth/callback` }
  const sandbox = await startSandbox(t, { profile, client, faults: { ...profile.faults, ...faults } })
  const own = { PORT: String(port), PUBLIC_URL: publicUrl, LOGIN_RATE_PER_MINUTE: '0' }
  return { sandbox, env: { ...platformEnv(sandbox), ...sandbox.env, ...own, ...env } }
}

/** A server in front of it. */
export async function startAtProfile(t: Teardown, profile: Profile, options: Options = {}) {
  const { sandbox, env } = await startProfile(t, profile, options)
  return { sandbox, bff: await startBff(t, sandbox, env) }
}
