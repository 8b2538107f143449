import { BffError, request } from '../../client/bff-client.ts'
import { byId, element } from './dom.ts'
import type { Exchange } from './exchange.ts'
import type { FluxView } from './flux-view.ts'
import type { Received } from './received.ts'
import type { SessionView } from './session-view.ts'
import type { Stage } from './stage.ts'

const CROWD = 100
/** No scenario takes longer: a token of the demo lives 20 seconds. */
const LIMIT_MS = 60_000

const CAUSES: Record<string, string> = {
  upstream_unavailable: 'the platform did not answer',
  upstream_timeout: 'the platform took too long',
  upstream_refused: 'the platform refused the token',
  authorization_server_unavailable: 'the platform gave no new token',
  login_required: 'the session is over',
  store_unavailable: 'the server could not read the session',
  unreachable: 'the server did not answer',
}

interface Page {
  sessionView: SessionView
  fluxView: FluxView
  stage: Stage
}

interface Scenario {
  id: string
  name: string
  /** What the product promises for it. */
  claim: string
  /** Breaks the platform, reads until it is over, and tells what happened. `say` shows progress. */
  run: (page: Page, say: (text: string) => void) => Promise<string>
}

const SCENARIOS: Scenario[] = [
  {
    id: 'platform-down',
    name: 'Platform down',
    claim: 'The platform resets every connection for 5 seconds. Reads fail meanwhile. You stay signed in.',
    run: readDuring('platform-down', hasRecovered),
  },
  {
    id: 'token-endpoint-down',
    name: 'No new tokens',
    claim:
      'Reads succeed as long as the token lives, then fail until the platform gives a new one. You stay signed in.',
    run: readDuring('token-endpoint-down', (reads, { stage }) => {
      if (reads.failed === 3 && reads.last.error !== null) void stage.begin('fine')
      return hasRecovered(reads)
    }),
  },
  {
    id: 'answer-lost',
    name: 'Answer lost',
    claim:
      'The platform issues a new token, but its answer gets lost. The server asks again before the present token expires. You stay signed in.',
    run: readDuring('answer-lost', ({ since }, { stage }) => {
      const isRefresh = ({ seq, kind, issued }: Received): boolean =>
        seq > since && kind === 'refresh_token' && issued !== null
      const refreshes = stage.platform().entries.filter(isRefresh)
      return refreshes.some(({ status }) => status === null) && refreshes.at(-1)?.status === 200
    }),
  },
  {
    id: 'expired',
    name: 'Expire the token',
    claim:
      'The platform refuses the token. The server gets a new one and repeats your read. You only wait a moment.',
    // The server forces one refresh a minute. A second press within it waits for the planned refresh.
    run: readDuring('expired', ({ last }) => last.error === null),
  },
  {
    id: 'crowd',
    name: `${CROWD} reads`,
    claim: `${CROWD} reads arrive in the second in which the token expires. The server gets one new token for all of them.`,
    run: readAsCrowd,
  },
  {
    id: 'revoked',
    name: 'Withdraw access',
    claim:
      'You withdraw the access at the platform, so the server gets no new token. This one signs you out, and the page says why.',
    run: readDuring('revoked', ({ last }) => last.error?.code === 'login_required'),
  },
]

/** The buttons that break the platform. Claim and result of the last one appear below them, in view with the lanes. */
export function startScenarios(page: Page) {
  const outcome = byId('scenario-outcome', HTMLElement)
  const claim = byId('scenario-claim', HTMLElement)
  const signInFirst = byId('scenario-sign-in', HTMLElement)
  const progress = byId('scenario-progress', HTMLElement)
  const result = byId('scenario-result', HTMLElement)
  const buttons = new Map<Scenario, HTMLButtonElement>()
  let running: Scenario | null = null
  let signedIn = false

  // A disabled button would lose the focus and could not say why it does nothing.
  const update = (): void => {
    signInFirst.hidden = signedIn
    for (const [scenario, button] of buttons) {
      button.setAttribute('aria-disabled', String(scenario !== running && (!signedIn || running !== null)))
      button.setAttribute('aria-busy', String(scenario === running))
    }
  }

  const note = (text: string): void => {
    delete result.dataset.kept
    result.textContent = text
  }

  const run = async (scenario: Scenario): Promise<void> => {
    if (running !== null) {
      if (scenario !== running) note(`Wait: “${running.name}” is not over yet.`)
      return
    }
    if (!signedIn) {
      note('Sign in first.')
      return
    }
    running = scenario
    update()
    claim.replaceChildren(element('strong', '', `${scenario.name}.`), ` ${scenario.claim}`)
    note('')
    result.dataset.result = scenario.id
    progress.textContent = 'It begins…'
    outcome.scrollIntoView({ block: 'end' })
    const said = await scenario
      .run(page, (text) => {
        progress.textContent = text
      })
      .catch((error: unknown) => String(error))
    await page.sessionView.look()
    const kept = page.sessionView.current() !== null
    progress.textContent = ''
    result.dataset.kept = String(kept)
    result.textContent = `${said} ${kept ? 'Still signed in.' : 'Signed out.'}`
    running = null
    update()
  }

  for (const scenario of SCENARIOS) {
    const button = element('button', 'button', scenario.name)
    button.type = 'button'
    button.dataset.scenario = scenario.id
    button.addEventListener('click', () => void run(scenario))
    buttons.set(scenario, button)
  }
  byId('scenario-buttons', HTMLElement).append(...buttons.values())
  update()

  return {
    /** Shows whether the buttons can be used. */
    showSession(isSignedIn: boolean): void {
      signedIn = isSignedIn
      if (running === null && result.dataset.kept === undefined) note('')
      update()
    },
  }
}

interface Reads {
  answered: number
  failed: number
  last: Exchange
  /** Number of the last request before the fault that the page knows. */
  since: number
}

function hasRecovered({ failed, last }: Reads): boolean {
  return failed > 0 && last.error === null
}

/** Begins this fault, reads the Flux of the form each second until `isOver`, ends the fault, and tells how the reads went. */
function readDuring(fault: string, isOver: (reads: Reads, page: Page) => boolean): Scenario['run'] {
  return async (page, say) => {
    const { fluxView, stage } = page
    const since = stage.platform().entries.at(-1)?.seq ?? 0
    await stage.begin(fault)
    const started = performance.now()
    const causes = new Set<string>()
    let [answered, failed] = [0, 0]
    const tell = (): string => {
      const failures = failed === 0 ? 'none failed' : `${failed} failed: ${[...causes].join(', ')}`
      return `${answered} ${answered === 1 ? 'read' : 'reads'} answered, ${failures}.`
    }
    for (;;) {
      const last = await fluxView.read()
      if (last.error === null) answered += 1
      else {
        failed += 1
        causes.add(describeCause(last.error))
      }
      await stage.look()
      const over = isOver({ answered, failed, last, since }, page)
      if (over || performance.now() - started > LIMIT_MS) {
        await stage.begin('fine')
        return over ? tell() : `${tell()} This took longer than a minute.`
      }
      say(`${tell()} The other buttons wait until this is over.`)
      await new Promise((resolve) => setTimeout(resolve, 1_000))
    }
  }
}

/** Why a read failed: in words, with the code that a page would test. */
function describeCause({ code, status }: BffError): string {
  if (code === null) return `the platform refused the request (${status})`
  return `${CAUSES[code] ?? 'the server refused the request'} (${code})`
}

async function readAsCrowd({ sessionView, stage }: Page, say: (text: string) => void): Promise<string> {
  const leftMs = (): number =>
    Date.parse(sessionView.current()?.accessTokenExpiresAt ?? '') - sessionView.now()
  // The platform holds the refresh back until half a second after the token has expired.
  await stage.begin('refresh-held', Math.max(0, leftMs()) / 1_000 + 0.5)
  const before = stage.platform().issued
  while (leftMs() > 0) {
    say(`The platform holds the refresh back. The token expires in ${Math.ceil(leftMs() / 1_000)} s.`)
    await new Promise((resolve) => setTimeout(resolve, Math.min(250, leftMs() + 1)))
  }
  const call = { method: 'GET', path: '/flux/temperature?format=JSON' } as const
  const headers = stage.sent(call)
  const failures = await Promise.all(
    Array.from({ length: CROWD }, () =>
      request(call.path, { headers }).then(
        async (response) => void (await response.text()),
        (error: unknown) => (error instanceof BffError ? (error.code ?? error.status) : String(error)),
      ),
    ),
  )
  await stage.look()
  const tokens = stage.platform().issued - before
  const answers = failures.filter((failure) => failure === undefined).length
  return `${answers} answers. The platform issued ${tokens} new ${tokens === 1 ? 'token' : 'tokens'} to this session.`
}
