// Compares responses with the OpenAPI document of the server that sent them.

import Ajv from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import type { Config } from '../../src/config/config.ts'
import type { Teardown } from './child.ts'

export interface Received {
  method: string
  /** Path and query. */
  target: string
  status: number
  header: (name: string) => string | undefined
  body: string
}

interface DocumentedResponse {
  content?: Record<string, { schema: { $ref?: string } }>
  headers?: Record<string, { schema: { type?: string } }>
}

interface Document {
  paths: Record<string, Record<string, { responses: Record<string, DocumentedResponse> }>>
}

/** Statuses that any route may answer with, without a word on it in the operation. */
const GENERAL = new Set([404, 405, 408, 413, 414, 415, 431, 500])

const PROBLEM = 'application/problem+json'

/** Paths whose responses come from the resource server. */
const FORWARDS = /^\/(data|flux|site)\b/

type Check = ReturnType<typeof createCheck>

/** By what the document depends on: to make one, and to compile its schemas, costs more than to start a server. */
const checks = new Map<string, Check>()
const checksByPort = new Map<number, () => Check>()

/**
 * Until the test ends, responses of the server on this port of the loopback must be as documented: those that
 * `requireDocumented` gets, and those of every `fetch` of this process.
 */
export function checkResponsesOf(
  t: Teardown,
  port: number,
  { oauth, operations, clientFluxAllowed }: Config,
  document: () => object,
): void {
  globalThis.fetch = checkedFetch
  const parts = [[...oauth.flows], oauth.redirect, operations, clientFluxAllowed === null]
  const key = JSON.stringify(parts)
  let check: Check | undefined
  const lazyCheck = (): Check => (check ??= findCheck(key, document))
  checksByPort.set(port, lazyCheck)
  t.teardown(() => checksByPort.get(port) === lazyCheck && checksByPort.delete(port))
}

/** Throws if the response differs from the document of its server. Ignores unknown ports, and files of a page. */
export function requireDocumented(port: number, received: Received): void {
  const fault = checksByPort.get(port)?.()(received)
  if (fault == null) return
  const { method, target, status, body } = received
  throw new Error(`not as documented: ${method} ${target} ${status}: ${fault}\n${body.slice(0, 500)}`)
}

const uncheckedFetch = globalThis.fetch

async function checkedFetch(...args: Parameters<typeof fetch>): Promise<Response> {
  const response = await uncheckedFetch(...args)
  const { port, pathname: target } = new URL(response.url)
  if (!checksByPort.has(Number(port))) return response
  const [input, init] = args
  const asked = init?.method ?? (input instanceof Request ? input.method : 'GET')
  const method = response.redirected ? 'GET' : asked.toUpperCase()
  const header = (name: string) => response.headers.get(name) ?? undefined
  // A forwarded body may be endless. Only the bodies that the server writes itself are read here.
  const isForwarded = FORWARDS.test(target) && header('content-type')?.startsWith(PROBLEM) !== true
  const body = isForwarded ? '' : await response.clone().text()
  requireDocumented(Number(port), { method, target, status: response.status, header, body })
  return response
}

function findCheck(key: string, document: () => object): Check {
  const check = checks.get(key) ?? createCheck(document() as Document)
  checks.set(key, check)
  return check
}

/** Says how a response differs from the document; null where it does not. */
export function createCheck(document: Document) {
  const ajv = new Ajv.default({ strict: false, validateSchema: false })
  formats.default(ajv)
  ajv.addSchema(document, 'document')
  const patterns = Object.keys(document.paths)
    // A path without parameters comes before one with them.
    .sort((a, b) => a.split('{').length - b.split('{').length)
    .map((path) => ({
      path,
      matches: new RegExp(`^${path.replaceAll('.', '\\.').replace(/\{\w+\}/g, '[^/]+')}$`),
    }))

  function schemaFault(name: string, value: unknown): string | null {
    const validate = ajv.getSchema(`document#/components/schemas/${name}`)!
    return validate(value) ? null : `${name}: ${ajv.errorsText(validate.errors)}`
  }

  function headerFault({ headers = {} }: DocumentedResponse, header: Received['header']): string | null {
    for (const [name, { schema }] of Object.entries(headers)) {
      const text = header(name.toLowerCase())
      const value = schema.type === 'integer' ? Number(text) : text
      if (text !== undefined && !ajv.validate(schema, value))
        return `${name}: ${text}: ${ajv.errorsText(ajv.errors)}`
    }
    return null
  }

  return function check({ method, target, status, header, body }: Received): string | null {
    const type = header('content-type')?.split(';')[0]?.trim().toLowerCase()
    if (type === PROBLEM) {
      const fault = body === '' ? null : schemaFault('Problem', JSON.parse(body))
      if (fault !== null) return fault
      if (header('x-request-id') === undefined) return 'no X-Request-Id'
    }
    const path = target.split('?', 1)[0]!
    const operations = patterns.find(({ matches }) => matches.test(path))
    const operation = operations && document.paths[operations.path]?.[method.toLowerCase()]
    if (operation === undefined) return null
    const forwards = FORWARDS.test(path)
    const response =
      operation.responses[status] ??
      (forwards || GENERAL.has(status) ? operation.responses.default : undefined)
    if (response === undefined) return `the status is not documented`
    // With `upstream_error` they are the resource server's.
    const isOurs = type === PROBLEM && !body.includes('"upstream_error"')
    const fault = isOurs ? headerFault(response, header) : null
    if (fault !== null) return fault
    if (status === 303 && header('location') === undefined) return 'no Location'
    if ([429, 503].includes(status) && !forwards && header('retry-after') === undefined)
      return 'no Retry-After'
    if (method === 'HEAD') return body === '' ? null : 'a body'
    if (body === '') return null
    const media = response.content?.[type ?? ''] ?? response.content?.['*/*']
    if (media === undefined) {
      // A test's resource server may send what no document tells of.
      return forwards && type !== 'text/html' ? null : `the type ${type} is not documented`
    }
    const name = media.schema.$ref?.split('/').at(-1)
    if (name === undefined || type !== 'application/json') return null
    // A test's resource server may call anything JSON; it is relayed unread.
    return forwards && !isJson(body) ? null : schemaFault(name, JSON.parse(body))
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
