import type { Teardown } from '../helpers/child.ts'
import { startBuilt } from '../helpers/server-process.ts'

export const SESSION_SECRET = 'the-first-secret-of-the-tests-of-32-characters'

export type Env = Record<string, string>

export interface Run {
  code: number | null
  /** What it answered, line by line. */
  lines: string[]
  stderr: string
}

/** Runs a built command of the operator with exactly this environment to its end. */
export async function run(t: Teardown, file: string, env: Env, ...args: string[]): Promise<Run> {
  const child = startBuilt(t, file, env, args)
  const { code } = await child.ended
  return { code, lines: child.stdout().split('\n').slice(0, -1), stderr: child.stderr() }
}

export function sessions(t: Teardown, env: Env, ...args: string[]): Promise<Run> {
  return run(t, 'sessions.js', env, ...args)
}
