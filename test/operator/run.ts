import { type Teardown, waitForOutput } from '../helpers/child.ts'
import { startBuilt } from '../helpers/server-process.ts'

export interface Run {
  code: number | null
  /** What it answered, line by line. */
  lines: string[]
  stderr: string
}

/** Runs the built operator's command with exactly this environment to its end. */
export async function sessions(t: Teardown, env: Record<string, string>, ...args: string[]): Promise<Run> {
  const child = startBuilt(t, 'sessions.js', env, args)
  await waitForOutput(child, () => null, 30_000)
  const { code } = await child.ended
  return { code, lines: child.stdout().split('\n').slice(0, -1), stderr: child.stderr() }
}
