import { type Child, startChild, type Teardown } from '../child.ts'
import { freePort } from '../ports.ts'
import { until } from '../wait.ts'

export interface Program {
  readonly command: string
  readonly args: readonly string[]
  readonly env: Record<string, string>
  readonly cwd?: string
  /** Answers once the server works. */
  readonly url: string
}

/** A program that is started again with other arguments. Each start waits until it answers. */
export function createProgram(t: Teardown) {
  let child: Child | null = null
  return async ({ command, args, env, cwd, url }: Program): Promise<void> => {
    await child?.stop('SIGKILL')
    const started = startChild(t, command, args, cwd === undefined ? { env } : { env, cwd })
    child = started
    await until(`${command} answers`, async () => {
      if (started.hasEnded()) throw new Error(`${command} ended at its start:\n${started.output()}`)
      const answer = await fetch(url, { redirect: 'manual' }).catch(() => null)
      await answer?.text()
      return answer !== null && answer.status < 500
    })
  }
}

/** An origin on a port that is free at this moment. */
export async function freeOrigin(): Promise<{ origin: string; port: string }> {
  const port = String(await freePort())
  return { origin: `http://127.0.0.1:${port}`, port }
}
