import type { FastifyInstance } from 'fastify'
import { problem } from '../errors.ts'
import { addJsonBodies, requireJson } from '../http/body.ts'
import { PATHS } from '../paths.ts'
import { comesFromOwnOrigin, OWN_ORIGIN_ONLY } from '../session/same-origin.ts'
import { readGetFlux } from './get-flux.ts'
import type { WacOptions } from './path-parts.ts'
import type { PerformOptions } from './perform.ts'
import { createPerform } from './perform.ts'
import type { SiteBody, SiteTarget } from './update-site.ts'
import { readSiteTarget, SITE_BODY_SCHEMA, toUpdateSite } from './update-site.ts'

declare module 'fastify' {
  interface FastifyRequest {
    siteTarget: SiteTarget | null
  }
}

export interface ProxyOptions extends PerformOptions {
  publicUrl: string
  wac: WacOptions
  bodyLimitBytes: number
}

/** The paths of this room and what they take; for the answer to any other method. */
export const PROXY_PATHS = [
  { path: PATHS.flux, allow: 'GET, HEAD' },
  { path: PATHS.fluxOfAccount, allow: 'GET, HEAD' },
  { path: PATHS.site, allow: 'PUT' },
  { path: PATHS.siteOfAccount, allow: 'PUT' },
  { path: PATHS.siteInBody, allow: 'POST' },
]

/**
 * The two operations of the resource server, GetFlux and UpdateSite, called with the access token of
 * the browser's session. Stands outside @fastify/session, which would cost more than the call itself.
 */
export async function addProxy(app: FastifyInstance, options: ProxyOptions): Promise<void> {
  const perform = createPerform(options)
  await app.register(async (scope) => {
    scope.decorateRequest('siteTarget', null)
    scope.addHook('onRequest', (request, _reply, done) => {
      const own = comesFromOwnOrigin(request.method, request.headers, options.publicUrl)
      done(own ? undefined : problem('cross_origin', OWN_ORIGIN_ONLY))
    })

    addJsonBodies(scope)

    for (const url of [PATHS.flux, PATHS.fluxOfAccount]) {
      scope.route({
        method: ['GET', 'HEAD'],
        url,
        handler: (request, reply) => perform(request, reply, readGetFlux(request, options.wac)),
      })
    }

    for (const { method, url } of [
      { method: 'PUT', url: PATHS.site },
      { method: 'PUT', url: PATHS.siteOfAccount },
      { method: 'POST', url: PATHS.siteInBody },
      // Not among the known paths: to other methods this may be a file of the app.
      { method: 'POST', url: PATHS.siteInBodyAsJson },
    ]) {
      scope.route({
        method,
        url,
        bodyLimit: options.bodyLimitBytes,
        schema: { body: SITE_BODY_SCHEMA },
        async onRequest(request) {
          request.siteTarget = readSiteTarget(request, options.wac)
          requireJson(request)
        },
        handler: (request, reply) =>
          perform(request, reply, toUpdateSite(request.siteTarget!, request.body as SiteBody, options.wac)),
      })
    }
  })
}
