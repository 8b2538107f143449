import { PassThrough } from 'node:stream'
import { type LiveOptions, runLive } from '../../operator/measure/live.ts'
import type { Finding } from '../../operator/report.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { createBrowser } from '../helpers/browser.ts'
import type { Teardown } from '../helpers/child.ts'
import { freePort } from '../helpers/ports.ts'
import { decide, platformEnv } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'

const NOTHING: LiveOptions = { json: true, flux: null, site: null, restore: null, draft: [], out: null }

export function envOf(sandbox: Sandbox, port: number) {
  return {
    HOST: '127.0.0.1',
    PORT: String(port),
    PUBLIC_URL: `http://localhost:${port}`,
    ...platformEnv(sandbox),
    SESSION_SECRET: 'the-first-secret-of-the-tests-of-32-characters',
    // Nobody listens there: no session may be stored.
    REDIS_URL: 'redis://127.0.0.1:9',
  }
}

/** Starts the command `--live`. Its lines, as they come, and the operator's hand and browser. */
export async function startLive(
  t: Teardown,
  sandbox: Sandbox,
  {
    env = {},
    onFinding,
    ...options
  }: Partial<LiveOptions> & {
    env?: Record<string, string>
    /** Called with each finding, before anything else is measured. */
    onFinding?: (finding: Finding) => void
  } = {},
) {
  const base = envOf(sandbox, await freePort())
  const publicUrl = base.PUBLIC_URL
  const { ended, input, stop, lines, errors } = start(t, { ...base, ...env }, options, onFinding)
  let hasEnded = false
  void ended.then(() => {
    hasEnded = true
  })
  const findings = (): Finding[] => lines.map((line) => JSON.parse(line) as Finding)
  const addresses = (): string[] =>
    findings().flatMap(({ check, value }) =>
      check === 'sign-in' && typeof value === 'string' ? [value] : [],
    )
  const address = async (number: number): Promise<string> => {
    await until('an address', () => hasEnded || addresses().length >= number)
    const found = addresses()[number - 1]
    if (found === undefined) throw new Error(`no sign-in was asked for: ${[...lines, ...errors].join(' ')}`)
    return found
  }
  const browser = createBrowser(publicUrl)
  return {
    ended,
    lines,
    errors,
    input,
    stop,
    publicUrl,
    browser,
    findings,
    address,
    found: (check: string) => findings().find((finding) => finding.check === check),
    /** The operator signs in at the printed address, as alice. */
    async signIn(number: number) {
      const start = await browser.navigate((await address(number)).slice(publicUrl.length))
      return await browser.navigate(await decide(sandbox, String(start.headers.location)), {
        from: 'cross-site',
      })
    },
  }
}

export function start(
  t: Teardown,
  env: Record<string, string>,
  options: Partial<LiveOptions> = {},
  onFinding: (finding: Finding) => void = () => {},
) {
  const input = new PassThrough()
  const stop = new AbortController()
  const lines: string[] = []
  const errors: string[] = []
  const out = (line: string) => {
    lines.push(line)
    onFinding(JSON.parse(line) as Finding)
  }
  const error = (line: string) => errors.push(line)
  const ended = runLive(env, { ...NOTHING, ...options }, { input, out, error, stop: stop.signal })
  t.teardown(async () => {
    stop.abort()
    await ended
  })
  return { ended, input, stop, lines, errors }
}

export type Live = Awaited<ReturnType<typeof startLive>>

/** Signs in twice, and answers no to every question that is still to come. */
export async function bothSignIns(live: Live): Promise<number> {
  live.input.end()
  await live.signIn(1)
  await live.signIn(2)
  return await live.ended
}
