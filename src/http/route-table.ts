import { maxHeaderSize } from 'node:http'
import type { FastifyContextConfig, FastifyInstance } from 'fastify'
import findMyWay from 'find-my-way'
import { decoded } from '../paths.ts'

/** What the routes of a path have in common. */
export interface KnownPath {
  /** Value of the `Allow` header. */
  allow: string
  /** Of the first of its routes, in the order of `METHODS`. */
  config: FastifyContextConfig
}

/** The routes of a path, whatever the method of a request; null where there is none. */
export type FindPath = (url: string) => KnownPath | null

/** Methods in the order of `Allow`. */
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const

/**
 * Finds the paths of all routes that are added to this server from now on. It asks a router of Fastify's own kind: what
 * Fastify keeps does not tell a wrong method from a wrong path.
 */
export function createRouteTable(server: FastifyInstance): FindPath {
  const router = findMyWay({ maxParamLength: maxHeaderSize })
  server.addHook('onRoute', ({ method, url, config }) => {
    for (const one of METHODS) if ([method].flat().includes(one)) router.on(one, url, () => {}, config ?? {})
  })
  return (url) => {
    // Decoded once and not for each method. An escape that is left, as of a slash, is in no literal of a route.
    const path = decoded(url.split(/[?#]/, 1)[0]!, decodeURI)
    if (path === null) return null
    const plain = path.replace(/%+/g, '-')
    const found = METHODS.flatMap((method) => {
      const route = router.find(method, plain)
      // `/flux/` and `/flux/DEMO/` match their routes with an empty parameter.
      return route === null || Object.values(route.params).includes('')
        ? []
        : [{ method, config: route.store }]
    })
    return found[0] === undefined
      ? null
      : {
          allow: found.map(({ method }) => method).join(', '),
          config: found[0].config,
        }
  }
}
