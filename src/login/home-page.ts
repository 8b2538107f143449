import type { FastifyReply, FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import { isNavigation } from '../http/problems.ts'
import { PATHS } from '../paths.ts'
import { sendPage } from './pages.ts'

/**
 * Answers requests that no route takes while `STATIC_DIR` is not set. A navigation to `/` gets a page that says so:
 * a sign-in without a `returnTo` ends there. Throws `not_found` for all else.
 */
export async function sendHomePage(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  if (request.method !== 'GET' || !/^\/(\?|$)/.test(request.url) || !isNavigation(request)) {
    throw problem('not_found')
  }
  // The same path is 404 for a script or a fetch.
  reply.header('vary', 'sec-fetch-mode, accept')
  return sendPage(reply, {
    status: 200,
    title: 'The server is running',
    text: 'It has no page to show here. Set STATIC_DIR to the build of your single-page app, or serve the page from a reverse proxy on this origin.',
    link: { href: PATHS.login, words: 'Sign in' },
  })
}
