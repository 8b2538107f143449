import type { FastifyInstance } from 'fastify'

/** Accepts every body as text, so that each endpoint can respond with its own error format. */
export function keepBodiesAsText(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) => done(null, body))
}

/** The body that such a scope has read; empty if there was none. */
export function textOf(body: unknown): string {
  return typeof body === 'string' ? body : ''
}
