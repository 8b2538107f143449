import { BffError, request } from '../../../client/bff-client.ts'
import { byId, element } from './dom.ts'
import type { Exchange } from './exchange.ts'
import type { FluxView } from './flux-view.ts'
import type { SessionView } from './session-view.ts'
import type { Stage } from './stage.ts'

const CROWD = 100
/** No day lasts longer: a token of the demo lives 20 seconds. */
const LIMIT_MS = 60_000

interface Page {
  sessionView: SessionView
  fluxView: FluxView
  stage: Stage
}

interface Day {
  id: string
  name: string
  /** What the product promises for it. */
  claim: string
  /** Breaks the platform, reads until it is over, and tells what happened. `say` shows progress. */
  run: (page: Page, say: (text: string) => void) => Promise<string>
}

const DAYS: Day[] = [
  {
    id: 'platform-down',
    name: 'Platform down',
    claim: 'Every connection is reset for 5 seconds. Reads fail meanwhile. The session stays.',
    async run(page, say) {
      await page.stage.begin('platform-down')
      return await readUntil(page, say, ({ failed, last }) => failed > 0 && last.error === null)
    },
  },
  {
    id: 'token-endpoint-down',
    name: 'Token endpoint down',
    claim:
      'No refresh succeeds until the token has expired. Reads go on as long as it lives. The session stays.',
    async run(page, say) {
      await page.stage.begin('token-endpoint-down')
      let ended = false
      return await readUntil(page, say, ({ failed, last }) => {
        if (failed >= 3 && !ended) {
          ended = true
          void page.stage.begin('fine')
        }
        return failed > 0 && last.error === null
      })
    },
  },
  {
    id: 'answer-lost',
    name: 'Answer lost',
    claim:
      'The platform replaces the token, and its answer gets lost. The server asks again before the old token expires. The session stays.',
    async run(page, say) {
      await page.stage.begin('answer-lost')
      const since = page.stage.platform().entries.at(-1)?.seq ?? 0
      const result = await readUntil(page, say, () => {
        const refreshes = page.stage
          .platform()
          .entries.filter(
            ({ seq, kind, issued }) => seq > since && kind === 'refresh_token' && issued !== null,
          )
        return refreshes.some(({ status }) => status === null) && refreshes.at(-1)?.status === 200
      })
      await page.stage.begin('fine')
      return result
    },
  },
  {
    id: 'expired',
    name: 'Expire the token now',
    claim: 'The platform refuses the token. The server replaces it and repeats the read. You wait a moment.',
    async run(page, say) {
      await page.stage.begin('expired')
      // The server forces one refresh a minute. A second press within it waits for the planned refresh.
      return await readUntil(page, say, ({ last }) => last.error === null)
    },
  },
  {
    id: 'crowd',
    name: `${CROWD} reads at expiry`,
    claim: `${CROWD} reads arrive in the second in which the token expires. The server refreshes once.`,
    run: readAsCrowd,
  },
  {
    id: 'revoked',
    name: 'The user revokes',
    claim: 'The platform refuses the refresh. This one ends the session, and the page says why.',
    async run(page, say) {
      await page.stage.begin('revoked')
      return await readUntil(page, say, ({ last }) => last.error?.code === 'login_required')
    },
  },
]

/** The buttons that break the platform, each with its claim and its result. */
export function startBadDays(page: Page): void {
  const list = byId('day-list', HTMLOListElement)
  let running = false
  for (const day of DAYS) {
    const button = element('button', 'button', day.name)
    const result = element('p', 'verdict')
    button.type = 'button'
    button.dataset.day = day.id
    result.dataset.result = day.id
    result.role = 'status'
    const say = (text: string): void => {
      result.textContent = text
    }
    const run = async (): Promise<void> => {
      if (running) return
      if (page.sessionView.current() === null) return say('Sign in first.')
      running = true
      button.setAttribute('aria-busy', 'true')
      delete result.dataset.kept
      const told = await day.run(page, say).catch((error: unknown) => String(error))
      await page.sessionView.look()
      const kept = page.sessionView.current() !== null
      result.dataset.kept = String(kept)
      say(`${told} ${kept ? 'Still signed in.' : 'Signed out.'}`)
      button.removeAttribute('aria-busy')
      running = false
    }
    button.addEventListener('click', () => void run())
    list.append(element('li', '', button, element('p', 'hint', day.claim), result))
  }
}

interface Reads {
  answered: number
  failed: number
  last: Exchange
}

/** Reads the Flux of the form each second until `isOver`, and tells how the reads went. */
async function readUntil(
  { fluxView, stage }: Page,
  say: (text: string) => void,
  isOver: (reads: Reads) => boolean,
): Promise<string> {
  const started = performance.now()
  const causes = new Set<string>()
  let [answered, failed] = [0, 0]
  const tell = (): string => {
    const failures = failed === 0 ? 'none failed' : `${failed} failed (${[...causes].join(', ')})`
    return `${answered} ${answered === 1 ? 'read' : 'reads'} answered, ${failures}.`
  }
  for (;;) {
    const last = await fluxView.read()
    if (last.error === null) answered += 1
    else {
      failed += 1
      causes.add(last.error.code ?? String(last.status))
    }
    await stage.look()
    if (isOver({ answered, failed, last })) return tell()
    if (performance.now() - started > LIMIT_MS) return `${tell()} This took longer than a minute.`
    say(`${tell()} Going on…`)
    await new Promise((resolve) => setTimeout(resolve, 1_000))
  }
}

async function readAsCrowd({ sessionView, stage }: Page, say: (text: string) => void): Promise<string> {
  const leftMs = (): number =>
    Date.parse(sessionView.current()?.accessTokenExpiresAt ?? '') - sessionView.now()
  // The platform holds the refresh back until half a second after the token has expired.
  await stage.begin('refresh-held', leftMs() / 1_000 + 0.5)
  const before = stage.platform().counters
  while (leftMs() > 0) {
    say(`The platform holds the refresh back. The token expires in ${Math.ceil(leftMs() / 1_000)} s.`)
    await new Promise((resolve) => setTimeout(resolve, Math.min(250, leftMs() + 1)))
  }
  const failures = await Promise.all(
    Array.from({ length: CROWD }, () =>
      request('/flux/temperature?format=JSON').then(
        async (response) => void (await response.text()),
        (error: unknown) => (error instanceof BffError ? (error.code ?? error.status) : String(error)),
      ),
    ),
  )
  await stage.look()
  const after = stage.platform().counters
  const name = 'token refresh_token granted'
  const refreshes = (after[name] ?? 0) - (before[name] ?? 0)
  const answers = failures.filter((failure) => failure === undefined).length
  const counted = `${answers} answers, ${refreshes} ${refreshes === 1 ? 'refresh' : 'refreshes'} by the sandbox's count.`
  // The server also refreshes the sessions of other browsers, and the sandbox counts them together.
  return refreshes > 1 ? `${counted} It includes the other sessions of this demo.` : counted
}
