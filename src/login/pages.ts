import type { FastifyReply, FastifyRequest } from 'fastify'
import { pagePolicy } from '../http/headers.ts'
import { isNavigation, type ProblemPage } from '../http/problems.ts'

const STYLE =
  'body{font:17px/1.5 system-ui,sans-serif;max-width:32rem;margin:15vh auto;padding:0 1.25rem;color:#1b1f24;background:#fff}' +
  'h1{font-size:1.4rem}a{display:inline-block;margin-top:.5rem;padding:.6rem 1.1rem;border-radius:.4rem;background:#1f5fbf;color:#fff;text-decoration:none}' +
  'p.id{color:#59636e;font-size:.85rem}@media(prefers-color-scheme:dark){body{color:#e6e9ee;background:#14181d}p.id{color:#98a2ad}}'

interface Page {
  status: number
  title: string
  text: string
  /** Address and words of the one link; the address is validated or built by the server. */
  link: { href: string; words: string; isButton?: boolean }
  requestId?: string
  /** Runs in the page; it may send requests to this server. */
  script?: string | undefined
}

/** Sends a small page of fixed text. Of the request it shows nothing but a validated address. */
export function sendPage(reply: FastifyReply, page: Page): FastifyReply {
  const { status, title, text, link, requestId, script } = page
  const id = requestId === undefined ? '' : `<p class="id">Request ${escapeHtml(requestId)}</p>`
  return reply
    .code(status)
    .type('text/html; charset=utf-8')
    .header('content-security-policy', pagePolicy({ style: STYLE, script }))
    .send(
      `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${escapeHtml(title)}</title>` +
        `<meta name="viewport" content="width=device-width,initial-scale=1"><style>${STYLE}</style></head>` +
        `<body><main><h1>${escapeHtml(title)}</h1><p>${escapeHtml(text)}</p>` +
        `<a href="${escapeHtml(link.href)}"${link.isButton ? ' role="button"' : ''}>${escapeHtml(link.words)}</a>${id}</main>${script === undefined ? '' : `<script>${script}</script>`}</body></html>`,
    )
}

/** How to show a problem as a page, with this script; null for a request that does not navigate. */
export function createProblemPage(script: string | undefined) {
  return (request: FastifyRequest, reply: FastifyReply): ProblemPage | null => {
    if (!isNavigation(request)) return null
    return ({ status, title, detail, members: { loginUrl } }) =>
      sendPage(reply, {
        status,
        title,
        text: detail ?? `${title}.`,
        link: { href: loginUrl ?? '/', words: loginUrl ? 'Try again' : 'Go to the start' },
        requestId: request.id,
        script,
      })
  }
}

/**
 * A problem with data that a person has opened, as a page. A 401 leads to the sign-in, which comes back to the start:
 * no sign-in ends on a data route.
 */
export function navigationPage(request: FastifyRequest, reply: FastifyReply): ProblemPage {
  return ({ status, title, code, detail, members: { loginUrl } }) =>
    sendPage(reply, {
      status,
      title,
      // The detail of other problems may name parts of the request.
      text: code === 'login_required' && detail !== undefined ? detail : `${title}.`,
      link: loginUrl ? { href: loginUrl, words: 'Sign in' } : { href: '/', words: 'Go to the start' },
      requestId: request.id,
    })
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)
}
