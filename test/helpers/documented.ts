// Compares responses with the OpenAPI document of the server that sent them.

import Ajv from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import type { Config } from '../../src/config/config.ts'
import { openApiDocument } from '../../src/http/openapi.ts'
import { loginOpenApi } from '../../src/login/routes.ts'
import { proxyOpenApi } from '../../src/proxy/routes.ts'

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
  headers?: Record<string, { $ref: string }>
}

interface Document {
  paths: Record<string, Record<string, { responses: Record<string, DocumentedResponse> }>>
}

/** Statuses that any route may answer with, without a word on it in the operation. */
const GENERAL = new Set([404, 405, 408, 413, 414, 415, 431, 500])

const checks = new Map<string, ReturnType<typeof createCheck>>()
const checksByPort = new Map<number, ReturnType<typeof createCheck>>()

/** The document that a server with this configuration serves. */
export function documentOf(config: Config): Document {
  const document = openApiDocument(config, [...loginOpenApi(config.oauth), ...proxyOpenApi(config)])
  return JSON.parse(JSON.stringify(document)) as Document
}

/** From now on the responses that come from this port on the loopback are checked. */
export function checkResponsesOf(port: number, config: Config): void {
  const document = documentOf(config)
  const text = JSON.stringify(document)
  const check = checks.get(text) ?? createCheck(document)
  checks.set(text, check)
  checksByPort.set(port, check)
}

export function stopChecking(port: number): void {
  checksByPort.delete(port)
}

/** Throws where the response is not as documented. Knows nothing of other servers' ports, nor of files of a page. */
export function requireDocumented(port: number, received: Received): void {
  const fault = checksByPort.get(port)?.(received)
  if (fault == null) return
  const { method, target, status, body } = received
  throw new Error(`not as documented: ${method} ${target} ${status}: ${fault}\n${body.slice(0, 500)}`)
}

/** Says how a response differs from the document; null where it does not. */
export function createCheck(document: Document) {
  const ajv = new Ajv.default({ strict: false, allErrors: false })
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

  return function check({ method, target, status, header, body }: Received): string | null {
    const type = header('content-type')?.split(';')[0]?.trim().toLowerCase()
    if (type === 'application/problem+json') {
      const fault = body === '' ? null : schemaFault('Problem', JSON.parse(body))
      if (fault !== null) return fault
      if (header('x-request-id') === undefined) return 'no X-Request-Id'
    }
    const path = target.split('?', 1)[0]!
    const operations = patterns.find(({ matches }) => matches.test(path))
    const operation = operations && document.paths[operations.path]?.[method.toLowerCase()]
    if (operation === undefined) return null
    const forwards = /^\/(flux|site)\b/.test(path)
    const response =
      operation.responses[status] ??
      (forwards || GENERAL.has(status) ? operation.responses.default : undefined)
    if (response === undefined) return `the status is not documented`
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
