import type { FastifyReply, FastifyRequest } from 'fastify'

/**
 * Whether the browser shows the response as a page: `Sec-Fetch-Mode: navigate` (Fetch Metadata section 2.2), or without
 * that header an `Accept` that names `text/html`. A service worker of Firefox passes a navigation on with mode
 * `same-origin` and destination `empty`; a fetch of a script does not name `text/html` by itself.
 */
export function isNavigation({ headers }: Pick<FastifyRequest, 'headers'>): boolean {
  const { 'sec-fetch-mode': mode, 'sec-fetch-dest': destination, accept = '' } = headers
  if (mode === 'navigate') return true
  if (mode !== undefined && (mode !== 'same-origin' || destination !== 'empty')) return false
  return /\btext\/html\b/i.test(accept)
}

/** For a path that a script or a fetch gets another response from. */
export function varyByNavigation(reply: FastifyReply): void {
  reply.header('vary', 'sec-fetch-mode, sec-fetch-dest, accept')
}
