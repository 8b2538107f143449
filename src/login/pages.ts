import type { FastifyReply, FastifyRequest } from 'fastify'
import { type Problem, problem, usualDetail } from '../errors.ts'
import { pagePolicy } from '../http/headers.ts'
import { isNavigation, varyByNavigation } from '../http/navigation.ts'
import type { ProblemPage } from '../http/problems.ts'
import { PATHS } from '../paths.ts'
import { DEVICE } from '../vault/vault.ts'

// The colours of the demo page and of the sandbox, so that a journey through all three looks like one.
const STYLE =
  ':root{color-scheme:light dark;--ink:#1a2233;--soft:#56617a;--paper:#fff;--ground:#f4f6fa;--accent:#2f4bdc;--on-accent:#fff}' +
  '@media(prefers-color-scheme:dark){:root{--ink:#e8ecf5;--soft:#a3aec4;--paper:#181e29;--ground:#0f131b;--accent:#8fa2ff;--on-accent:#0d1330}}' +
  '*{box-sizing:border-box}body{margin:0;min-height:100vh;display:grid;place-items:center;padding:1rem;font:1.0625rem/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground)}' +
  'main{width:100%;max-width:28rem;padding:1.5rem;border-top:.375rem solid var(--accent);border-radius:.875rem;background:var(--paper)}' +
  'h1{margin:0 0 .75rem;font-size:1.375rem;line-height:1.25}p{margin:0 0 1rem;overflow-wrap:anywhere}' +
  'a{display:inline-block;padding:.6rem 1.1rem;border:1px solid var(--accent);border-radius:.5rem;background:var(--accent);color:var(--on-accent);font-weight:600;text-decoration:none}' +
  ':focus-visible{outline:3px solid var(--accent);outline-offset:2px}p.id{margin:1rem 0 0;color:var(--soft);font-size:.875rem}'

interface Page {
  status: number
  title: string
  text: string
  /** Address and words of the one link; the address is validated or built by the server. */
  link: { href: string; words: string; isButton?: boolean }
  requestId?: string
  /** Runs in the page; it may send requests to this server. */
  script?: string | undefined
  /** Loads its own address again at once. */
  reload?: boolean
}

/** Sends a small page of fixed text. Of the request it shows nothing but a validated address. */
export function sendPage(reply: FastifyReply, page: Page): FastifyReply {
  const { status, title, text, link, requestId, script, reload = false } = page
  const id = requestId === undefined ? '' : `<p class="id">Request ${escapeHtml(requestId)}</p>`
  return reply
    .code(status)
    .type('text/html; charset=utf-8')
    .header('content-security-policy', pagePolicy({ style: STYLE, script }))
    .send(
      `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${escapeHtml(title)}</title>` +
        `<meta name="viewport" content="width=device-width,initial-scale=1">${reload ? '<meta http-equiv="refresh" content="0">' : ''}<style>${STYLE}</style></head>` +
        `<body><main><h1>${escapeHtml(title)}</h1><p>${escapeHtml(text)}</p>` +
        `<a href="${escapeHtml(link.href)}"${link.isButton ? ' role="button"' : ''}>${escapeHtml(link.words)}</a>${id}</main>${script === undefined ? '' : `<script>${script}</script>`}</body></html>`,
    )
}

/**
 * Handles requests that no route takes while `STATIC_DIR` is not set. A navigation to `/` gets a page that says so:
 * a sign-in without a `returnTo` ends there. Throws `not_found` for all else.
 */
export async function sendHomePage(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  if (request.method !== 'GET' || !/^\/(\?|$)/.test(request.url) || !isNavigation(request)) {
    throw problem('not_found')
  }
  varyByNavigation(reply)
  return sendPage(reply, {
    status: 200,
    title: 'The server is running',
    text: 'It has no page to show here. Set STATIC_DIR to the build of your single-page app, or serve the page from a reverse proxy on this origin.',
    link: { href: PATHS.login, words: 'Sign in' },
  })
}

/** How to show a problem of a sign-in as a page, with this script; null for a request that does not navigate. */
export function createSignInProblemPage(script: string | undefined) {
  return (request: FastifyRequest, reply: FastifyReply): ProblemPage | null => {
    if (!isNavigation(request)) return null
    return (found) => {
      const { status, title, detail, members } = found
      return sendPage(reply, {
        status,
        title,
        text: detail ?? signInAdvice(found),
        link: members.loginUrl
          ? { href: members.loginUrl, words: wordsFor(status) }
          : { href: '/', words: 'Go to the start' },
        requestId: request.id,
        script,
      })
    }
  }
}

/**
 * A problem with data that a person has opened, as a page. A 401 leads to the sign-in, which comes back to the start:
 * no sign-in ends on a data route.
 */
export function navigationPage(request: FastifyRequest, reply: FastifyReply): ProblemPage {
  return (found) => {
    const { code, status, title } = found
    const { loginUrl, reason } = found.members
    const page = { status, title, requestId: request.id }
    // A browser refreshes no device cookie for a navigation that began elsewhere. From this page it does.
    if (reason === DEVICE && request.headers['sec-fetch-site'] !== 'same-origin')
      return sendPage(reply, { ...page, ...ONCE_MORE, status: 200 })
    if (code === 'cross_origin' && isFollowedLink(request)) {
      const text = 'Another site has sent you here. Open the address only if you meant to.'
      return sendPage(reply, { ...page, text, link: { href: SAME_ADDRESS, words: 'Open' } })
    }
    return sendPage(reply, {
      ...page,
      text: dataAdvice(found),
      link: loginUrl ? { href: loginUrl, words: 'Sign in' } : { href: '/', words: 'Go to the start' },
    })
  }
}

const ONCE_MORE = {
  title: 'One moment',
  text: 'The browser proves that the session is its own.',
  link: { href: '', words: 'Go on' },
  reload: true,
}

/** From the page that is shown it comes from our own origin. */
const SAME_ADDRESS = ''

/** Whether a person came by a link, as of a mail: `Sec-Fetch-Site` names another site, and no `Origin` is sent. */
function isFollowedLink({ method, headers: { origin, 'sec-fetch-site': site } }: FastifyRequest): boolean {
  return method === 'GET' && origin === undefined && (site === 'cross-site' || site === 'same-site')
}

/** To try the same again helps after an outage or a pause, not after a refusal. */
function wordsFor(status: number): string {
  return status >= 500 || status === 429 ? 'Try again' : 'Sign in'
}

function signInAdvice(found: Problem): string {
  const { status } = found
  if (status >= 500) return 'The sign-in could not be completed. Try again in a moment.'
  if (status === 429) return 'Too many sign-ins. Wait a minute, then try again.'
  return advice(found)
}

function dataAdvice(found: Problem): string {
  const { status, code, detail, members } = found
  // It says why the session ended, or that a new sign-in may help. Other details are for authors of pages, or name parts of
  // the request.
  const isForUser = members.reason !== undefined || (status >= 500 && members.loginUrl !== undefined)
  if (isForUser && detail !== undefined) return detail
  if (code === 'cross_origin') return 'Open it from a page of this site instead.'
  if (status === 401) return 'Sign in, then open this address again.'
  if (status === 403) return 'Trying again will not help: your account may not open this address.'
  if (status >= 500) return 'You do not have to sign in again because of this. Try again in a moment.'
  return advice(found)
}

function advice(found: Problem): string {
  const { status } = found
  if (status === 405) return `This address cannot be opened in this way. ${usualDetail(found)}`
  if (status === 404) return 'Check it for a misspelling.'
  return 'Go back and start again.'
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)
}
