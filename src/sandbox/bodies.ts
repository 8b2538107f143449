import type { FastifyInstance } from 'fastify'

/** Lets every body through as text, so that each endpoint refuses a wrong one in its own words. */
export function keepBodiesAsText(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) => done(null, body))
}

/** The body that such a scope has read; empty where there was none. */
export function textOf(body: unknown): string {
  return typeof body === 'string' ? body : ''
}
