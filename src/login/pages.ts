import type { FastifyReply } from 'fastify'
import { pagePolicy } from '../http/headers.ts'

const STYLE =
  'body{font:17px/1.5 system-ui,sans-serif;max-width:32rem;margin:15vh auto;padding:0 1.25rem;color:#1b1f24;background:#fff}' +
  'h1{font-size:1.4rem}a{display:inline-block;margin-top:.5rem;padding:.6rem 1.1rem;border-radius:.4rem;background:#1f5fbf;color:#fff;text-decoration:none}' +
  'p.id{color:#59636e;font-size:.85rem}@media(prefers-color-scheme:dark){body{color:#e6e9ee;background:#14181d}p.id{color:#98a2ad}}'

export interface Page {
  status: number
  title: string
  text: string
  /** Address and words of the one link, both made here or validated. */
  link: { href: string; words: string; isButton?: boolean }
  requestId?: string
  /** Runs in the page; it may ask this server. */
  script?: string
}

/** A small page of fixed text; it shows nothing of the request but a validated address. */
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

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)
}
