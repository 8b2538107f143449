import type { BffError } from '../../client/bff-client.ts'
import { byId, element } from './dom.ts'
import { type Exchange, exchange } from './exchange.ts'
import type { FluxView } from './flux-view.ts'
import type { Received } from './received.ts'
import type { SessionView } from './session-view.ts'
import type { Stage } from './stage.ts'
import type { Thief, Verdict } from './thief.ts'

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
  thief: Thief
}

interface Scenario {
  id: string
  name: string | ((page: Page) => string)
  /** What the product promises for it. */
  claim: string
  /** Does it, until it is over, and tells what happened. `say` shows progress. */
  run: (page: Page, say: (text: string) => void) => Promise<Verdict>
  /** It ends the session, so its verdict is about that. */
  endsSession?: true
}

/** What somebody does who wants the tokens, or the session. */
const THEFTS: Scenario[] = [
  {
    id: 'steal',
    name: 'Steal the tokens',
    claim:
      'This does what an injected script would do: it searches every place in this browser that a script can reach.',
    run: ({ thief }) => thief.search(),
  },
  {
    id: 'plant',
    name: ({ thief }) => (thief.hasPlanted() ? 'Remove the planted token' : 'Plant a token, search again'),
    claim:
      'A page that keeps its token itself: this puts a made-up one into localStorage. The search must find it.',
    run: ({ thief }) => thief.plantOrRemove(),
  },
]

/** With the platform of the demo alone, signed in. */
const COPY_COOKIE: Scenario = {
  id: 'copied-cookie',
  name: 'Copy the session cookie into another browser',
  claim:
    'Somebody copies your cookie and reads with it elsewhere. A session that is bound to the device refuses that.',
  run: copyCookie,
}

const BREAKS: Scenario[] = [
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
    run: readDuring('revoked', ({ last }) => last.error?.code === 'login_required', false),
    endsSession: true,
  },
]

/** The buttons that attack and break. What each claims, and its verdict, stand above them. */
export function startScenarios(page: Page) {
  const outcome = byId('outcome', HTMLElement)
  const claim = byId('outcome-claim', HTMLElement)
  const progress = byId('outcome-progress', HTMLElement)
  const verdict = byId('verdict', HTMLElement)
  const buttons = new Map<Scenario, HTMLButtonElement>()
  let running: Scenario | null = null
  /** Whose verdict is shown. */
  let shown: Scenario | null = null
  let signedIn = false

  const nameOf = ({ name }: Scenario): string => (typeof name === 'string' ? name : name(page))
  const needsSession = (scenario: Scenario): boolean => !THEFTS.includes(scenario)

  // A disabled button would lose the focus and could not say why it does nothing.
  const update = (): void => {
    for (const [scenario, button] of buttons) {
      const waits = running !== null && scenario !== running
      button.setAttribute('aria-disabled', String(waits || (needsSession(scenario) && !signedIn)))
      button.setAttribute('aria-busy', String(scenario === running))
      if (button.textContent !== nameOf(scenario)) button.textContent = nameOf(scenario)
    }
    if (outcome.dataset.result !== undefined) return
    const first = signedIn ? 'Press a button.' : 'Sign in first.'
    claim.replaceChildren(element('strong', '', first), ` ${INTRODUCTION}`)
  }

  const run = async (scenario: Scenario): Promise<void> => {
    if (running !== null) {
      if (scenario !== running) progress.textContent = `Wait: “${nameOf(running)}” is not over yet.`
      return
    }
    if (needsSession(scenario) && !signedIn) {
      progress.textContent = 'Sign in first.'
      return
    }
    running = scenario
    shown = scenario
    outcome.dataset.result = scenario.id
    delete verdict.dataset.tone
    claim.replaceChildren(element('strong', '', `${nameOf(scenario)}.`), ` ${scenario.claim}`)
    verdict.textContent = ''
    progress.textContent = 'It begins…'
    update()
    const { tone, text } = await scenario
      .run(page, (said) => {
        progress.textContent = said
      })
      .catch((error: unknown): Verdict => ({ tone: 'bad', text: String(error) }))
    progress.textContent = ''
    verdict.dataset.tone = tone
    verdict.textContent = text
    running = null
    update()
  }

  const clear = (): void => {
    shown = null
    delete outcome.dataset.result
    delete verdict.dataset.tone
    verdict.textContent = ''
  }

  const add = (place: HTMLElement, scenario: Scenario, className = 'button'): void => {
    const button = element('button', className)
    button.type = 'button'
    button.dataset.scenario = scenario.id
    button.addEventListener('click', () => void run(scenario))
    buttons.set(scenario, button)
    place.append(button)
  }
  const thefts = byId('steal-buttons', HTMLElement)
  for (const [at, scenario] of THEFTS.entries()) add(thefts, scenario, at === 0 ? 'button primary' : 'button')
  add(thefts, COPY_COOKIE, 'button with-platform')
  for (const scenario of BREAKS) add(byId('break-buttons', HTMLElement), scenario)
  update()

  return {
    /** Shows whether the buttons can be used. */
    showSession(isSignedIn: boolean): void {
      const isOver = signedIn && !isSignedIn && running === null
      signedIn = isSignedIn
      // Its “Still signed in.” is no longer true.
      if (isOver && shown !== null && needsSession(shown) && !shown.endsSession) clear()
      if (running === null) progress.textContent = ''
      update()
    },
  }
}

const INTRODUCTION =
  'Each button attacks this page or breaks the platform for real. Only “Withdraw access” signs you out.'

/** The verdict of a scenario whose reads went so. `expected`: whether the user is signed in at its end. */
async function verdictOf({ sessionView }: Page, said: string, expected = true): Promise<Verdict> {
  await sessionView.look()
  const kept = sessionView.current() !== null
  return {
    tone: kept === expected ? 'good' : 'bad',
    text: `${said} ${kept ? 'Still signed in.' : 'Signed out.'}`,
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

/**
 * Begins this fault, reads the Flux of the form each second until `isOver`, ends the fault, and tells how the reads went.
 * `staysSignedIn`: what is expected of it.
 */
function readDuring(
  fault: string,
  isOver: (reads: Reads, page: Page) => boolean,
  staysSignedIn = true,
): Scenario['run'] {
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
        if (over) return await verdictOf(page, tell(), staysSignedIn)
        return { tone: 'bad', text: `${tell()} This took longer than a minute.` }
      }
      say(`${tell()} The other buttons wait until this is over.`)
      await new Promise((resolve) => setTimeout(resolve, 1_000))
    }
  }
}

/** Why a read failed: in words, with the code that a page would test. */
function describeCause({ code, status }: BffError): string {
  if (code === null) return `the platform answered with an error (${status})`
  return `${CAUSES[code] ?? 'the server refused the request'} (${code})`
}

async function readAsCrowd(page: Page, say: (text: string) => void): Promise<Verdict> {
  const { sessionView, stage } = page
  const leftMs = (): number =>
    Date.parse(sessionView.current()?.accessTokenExpiresAt ?? '') - sessionView.now()
  // The platform holds the refresh back until half a second after the token has expired.
  await stage.begin('refresh-held', Math.max(0, leftMs()) / 1_000 + 0.5)
  const before = stage.platform().issued
  while (leftMs() > 0) {
    say(`The platform holds the refresh back. The token expires in ${Math.ceil(leftMs() / 1_000)} s.`)
    await new Promise((resolve) => setTimeout(resolve, Math.min(250, leftMs() + 1)))
  }
  const read = () => exchange(READ, stage.sent(READ), READ_WAIT_MS)
  const reads = await Promise.all(Array.from({ length: CROWD }, read))
  const answers = reads.filter(({ status }) => status === 200).length
  await stage.look()
  const tokens = stage.platform().issued - before
  const issued = `The platform issued ${tokens} new ${tokens === 1 ? 'token' : 'tokens'} to this session.`
  return await verdictOf(page, `${answers} answers. ${issued}`)
}

const READ = { method: 'GET', path: '/flux/temperature?format=JSON' } as const
/** As long as a page that calls `flux()` waits. */
const READ_WAIT_MS = 15_000

/** Another browser, which has the session cookie of this one and no other, reads a Flux. The origin of the demo plays it. */
async function copyCookie({ sessionView, stage }: Page): Promise<Verdict> {
  await sessionView.look()
  const sent = stage.sent(READ, true)
  const asked = await exchange({ method: 'POST', path: '/_demo/copied-cookie' }, { ...sent, arrived() {} })
  const { status, reason } = JSON.parse(asked.error === null ? asked.text : '{"status":0}') as {
    status: number
    reason: string | null
  }
  sent.arrived(status)
  if (status === 401 && reason === 'device')
    return {
      tone: 'good',
      text: 'The other browser got 401: the session is bound to this device. Still signed in here.',
    }
  if (status === 200) {
    const text = `The other browser read your data (200): this browser is not bound, so a copied cookie works until you sign out. ${WHERE_BOUND}`
    return { tone: 'plain', text }
  }
  return {
    tone: 'plain',
    text: `The other browser got ${status === 0 ? 'no answer' : status}. Try it once more.`,
  }
}

const WHERE_BOUND =
  location.protocol === 'https:'
    ? 'Chrome on Windows is bound within a minute.'
    : 'Over https Chrome on Windows is bound; this page has no https.'
