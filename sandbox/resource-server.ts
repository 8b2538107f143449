import { createHash } from 'node:crypto'
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { MAX_UPLOAD_BYTES } from '../src/config/operations-file.ts'
import { errorResponse, identify, invalidToken } from './access.ts'
import type { Accounts } from './accounts.ts'
import type { Answers } from './answers.ts'
import type { Authorization, Authorizations } from './authorizations.ts'
import { bytesOf, textOf } from './bodies.ts'
import type { FaultSwitches, Faults } from './faults.ts'
import type { Files, SandboxFile } from './files.ts'
import { fluxAt, renderFlux } from './flux.ts'
import { chooseFormat, contentTypeOf } from './formats.ts'
import { type Journal, queryOf } from './journal.ts'
import { listResponse, rowsResponse } from './lists.ts'
import type { Pipeline } from './pipeline.ts'
import { jsonResponse, type SandboxResponse, textResponse, withHeaders } from './response.ts'
import type { Settings } from './settings.ts'
import type { Sites } from './sites.ts'
import { isCallbackName, readUpdateSite, siteIdOf } from './update-site.ts'

/** The Flux that does not exist, for tests of that case. */
const MISSING_FLUX = 'missing'
const VALUES = 12
const MOST_VALUES = 100_000

const ENCODERS = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync }

interface ResourceServer {
  settings: Settings
  accounts: Accounts
  answers: Answers
  authorizations: Authorizations
  faults: FaultSwitches
  sites: Sites
  files: Files
  journal: Journal
  pipeline: Pipeline
}

/** The routes of document sections 4.2 and 4.3. GetFlux takes HEAD too. */
export function registerResourceServer(app: FastifyInstance, server: ResourceServer): void {
  const { answers, authorizations, faults, journal, pipeline } = server

  function route(operation: string, work: Work) {
    return async (request: FastifyRequest, reply: FastifyReply) => {
      const body = textOf(request.body)
      const entry = journal.recordArrival(request, { endpoint: 'resource', kind: operation, body })
      const shape = () => answers.guard('token: expired', () => invalidToken(faults.current().invalidToken))
      await pipeline.handle({
        endpoint: 'resource',
        entry,
        reply,
        work: () => withFaultHeaders(respond(request, work), faults.current()),
        invalidToken: () => withFaultHeaders(shape(), faults.current()),
      })
    }
  }

  function respond(request: FastifyRequest, work: Work): SandboxResponse {
    const query = queryOf(request)
    const caller = identify({
      query,
      headers: request.headers,
      authorizations,
      faults: faults.current(),
      answers,
    })
    if (caller.kind === 'refused') return caller.response
    const response = work({ server, request, query, authorization: caller.authorization })
    return { ...response, username: caller.authorization.username }
  }

  app.get('/:wac/flux/:fluxId', route('GetFlux', getFlux))
  app.put('/:wac/Infrastructure/Site/:siteId', route('UpdateSite', updateSite))
  for (const suffix of ['', '.json'])
    app.post(`/json/reply/UpdateSite${suffix}`, route('UpdateSite', updateSite))
  for (const [name, method, url, work] of INVENTED)
    app.route({ method, url, bodyLimit: MAX_UPLOAD_BYTES, handler: route(nameOf(method, url) ?? name, work) })
  for (const { name, method, url } of server.settings.operations) {
    // Its own addresses stay its own: those of the authorization server and of its switches as well.
    if (!app.hasRoute({ method, url: app.prefix + url }))
      app.route({ method, url, bodyLimit: MAX_UPLOAD_BYTES, handler: route(name, echo(name)) })
  }

  function nameOf(method: string, url: string): string | undefined {
    const same = server.settings.operations.find(
      (declared) => declared.method === method && shapeOf(declared.url) === shapeOf(url),
    )
    return same?.name
  }
}

function shapeOf(url: string): string {
  return url.replace(/:\w+/g, ':')
}

/** Operations that the document does not show. Their names, paths and responses are invented. */
const INVENTED: readonly (readonly [name: string, method: string, url: string, work: Work])[] = [
  ['ListFluxes', 'GET', '/:wac/flux', inAccount(listFluxes)],
  ['GetSite', 'GET', '/:wac/Infrastructure/Site/:siteId', inAccount(getSite)],
  ['ListWUMs', 'GET', '/WUM', ({ request, query }) => listResponse(request, query, WUMS)],
  ['GetFile', 'GET', '/:wac/FileStore/:fileId', inAccount(getFile)],
  ['AddFile', 'POST', '/:wac/FileStore', inAccount(addFile)],
  ['GetMe', 'GET', '/:wac/User/me', inAccount(getMe)],
]

const WUMS = [
  { wType: 'WUM', id: 1, name: 'Electricity', unit: 'kWh' },
  { wType: 'WUM', id: 2, name: 'Cold water', unit: 'm³' },
]

/** `work` for accounts that exist and in which the user has a role. */
function inAccount(work: Work): Work {
  return (call) => {
    const { wac = '' } = call.request.params as Record<string, string>
    return accountRefusal(call.server.accounts, call.authorization, wac) ?? work(call)
  }
}

function listFluxes({ request, query }: Call): SandboxResponse {
  const { wac = '' } = request.params as Record<string, string>
  const fluxes = ['temperature', 'power', 'water'].map((fluxID) => ({ wType: 'Flux', fluxID, wac }))
  return listResponse(request, query, fluxes)
}

function getFile({ server, request }: Call): SandboxResponse {
  const { wac = '', fileId = '' } = request.params as Record<string, string>
  const file = server.files.find(wac, fileId)
  return file === null
    ? errorResponse(404, 'not_found', 'There is no such file.')
    : fileResponse(file, 'answered')
}

function fileResponse({ type, bytes }: SandboxFile, outcome: string): SandboxResponse {
  return { ...withHeaders(textResponse(200, '', outcome), { 'content-type': type }), body: bytes }
}

function addFile({ server, request }: Call): SandboxResponse {
  const { wac = '' } = request.params as Record<string, string>
  const type = request.headers['content-type'] ?? 'application/octet-stream'
  const { id, bytes } = server.files.add(wac, type, bytesOf(request.body))
  const response = jsonResponse(201, { wType: 'File', id, type, bytes: bytes.length }, 'answered')
  return withHeaders(response, { location: `${server.settings.resourcePath}/${wac}/FileStore/${id}` })
}

function getSite({ server, request }: Call): SandboxResponse {
  const { wac = '', siteId = '' } = request.params as Record<string, string>
  const id = siteIdOf(siteId)
  if (id === null) return errorResponse(400, 'invalid_request', 'The site id must be an integer.')
  const site = server.sites.find(wac, id)
  return site === null
    ? errorResponse(404, 'not_found', 'There is no such site.')
    : jsonResponse(200, site, 'answered')
}

function getMe({ authorization }: Call): SandboxResponse {
  const { username } = authorization
  if (username === null)
    return errorResponse(403, 'user_context_required', 'This needs a token with a user context.')
  return jsonResponse(200, { wType: 'User', id: `user-${username}`, name: username }, 'answered')
}

/** The response to an operation that the sandbox does not know: what arrived. */
function echo(operation: string): Work {
  return ({ server, request, query }) => {
    const { method, url, headers } = request
    const wanted = (headers.accept ?? '').split(',').map((type) => type.split(';', 1)[0]!.trim())
    const file = server.files.given.find(({ type }) => wanted.includes(type))
    if (file !== undefined && !query.has('format')) return fileResponse(file, 'echoed')
    const row = { wType: 'Echo', operation, method, path: url.split('?')[0]! }
    return rowsResponse(request, query, [row], 'echoed', {
      ...row,
      query: echoedQuery(query),
      body: readBody(bytesOf(request.body)),
    })
  }
}

/** A parameter that came several times is a list. */
function echoedQuery(query: URLSearchParams): Record<string, string | string[]> {
  const names = [...new Set(query.keys())].filter((name) => name !== 'access_token')
  return Object.fromEntries(
    names.map((name) => {
      const values = query.getAll(name)
      return [name, values.length === 1 ? values[0]! : values]
    }),
  )
}

/** A body as JSON; of one that is none its length. */
function readBody(body: Buffer): unknown {
  if (body.length === 0) return null
  try {
    return JSON.parse(body.toString()) as unknown
  } catch {
    return { bytes: body.length }
  }
}

interface Call {
  server: ResourceServer
  request: FastifyRequest
  query: URLSearchParams
  authorization: Authorization
}

type Work = (call: Call) => SandboxResponse

function getFlux({ server, request, query, authorization }: Call): SandboxResponse {
  const { wac = '', fluxId = '' } = request.params as Record<string, string>
  const refusal = accountRefusal(server.accounts, authorization, wac)
  if (refusal !== null) return refusal
  if (fluxId === MISSING_FLUX) return errorResponse(404, 'not_found', 'There is no such Flux.')
  const { 'content-type': contentType, accept } = request.headers
  const format = chooseFormat(query.getAll('format'), contentType, accept)
  if (format === null) return errorResponse(400, 'invalid_request', 'format must be JSON, XML, CSV or JSV.')
  const count = Number(query.get('values') ?? VALUES)
  if (!Number.isInteger(count) || count < 0 || count > MOST_VALUES) {
    return errorResponse(400, 'invalid_request', `values must be at most ${MOST_VALUES}.`)
  }

  const text = renderFlux(fluxAt({ wac, fluxId, count, now: server.settings.now() }), format)
  const etag = `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"`
  const headers = { 'cache-control': 'private, no-cache', etag, vary: 'Accept, Content-Type' }
  const known = request.headers['if-none-match']?.split(',').map((tag) => tag.trim().replace(/^W\//, ''))
  if (known?.includes(etag)) return withHeaders(textResponse(304, '', 'not_modified'), headers)
  const response = textResponse(200, text, 'answered')
  return withHeaders(response, { ...headers, 'content-type': contentTypeOf(format) })
}

function updateSite({ server, request, query, authorization }: Call): SandboxResponse {
  if (authorization.username === null) {
    return errorResponse(403, 'user_context_required', 'UpdateSite needs a token with a user context.')
  }
  const { wac: pathWac, siteId: segment } = request.params as Record<string, string>
  const pathSite = segment === undefined ? null : siteIdOf(segment)
  if (segment !== undefined && pathSite === null) {
    return errorResponse(400, 'invalid_request', 'The site id must be an integer.')
  }
  if (!/^application\/json\s*(;|$)/i.test(request.headers['content-type'] ?? '')) {
    return errorResponse(415, 'unsupported_media_type', 'The body must be application/json.')
  }
  const callback = query.get('callback')
  if (callback !== null && !isCallbackName(callback)) {
    return errorResponse(400, 'invalid_request', 'callback must be a JavaScript name.')
  }

  const path = pathSite === null ? null : { wac: pathWac ?? '', siteId: pathSite }
  const update = readUpdateSite(textOf(request.body), path)
  if (update.kind === 'faulty') return errorResponse(400, 'invalid_request', update.description)
  const refusal = accountRefusal(server.accounts, authorization, update.wac)
  if (refusal !== null) return refusal
  const site = server.sites.update(
    update.wac,
    update.siteId,
    update.change,
    server.faults.current().absentMembers,
  )
  if (site === null) return errorResponse(404, 'not_found', 'There is no such site.')
  if (callback === null) return jsonResponse(200, site, 'answered')
  const response = textResponse(200, `${callback}(${JSON.stringify(site)})`, 'answered')
  return withHeaders(response, { 'content-type': 'text/javascript; charset=utf-8' })
}

/** The response for an account that does not exist or in which the user has no role; null: go on. */
function accountRefusal(
  accounts: Accounts,
  { username }: Authorization,
  wac: string,
): SandboxResponse | null {
  if (!accounts.isWac(wac)) return errorResponse(404, 'not_found', 'There is no such account.')
  return accounts.mayEnter(username, wac) ? null : errorResponse(403, 'forbidden', 'No role in this account.')
}

/** The response with the content coding and the header fields that the switches ask for. */
function withFaultHeaders(
  response: SandboxResponse,
  { resourceEncoding, resourceHeaders }: Readonly<Faults>,
): SandboxResponse {
  const headers = { ...response.headers }
  let { body } = response
  if (resourceEncoding !== 'identity' && body.length > 0) {
    body = ENCODERS[resourceEncoding](body)
    headers['content-encoding'] = resourceEncoding
  }
  for (const [name, value] of Object.entries(resourceHeaders)) {
    if (value === null) delete headers[name.toLowerCase()]
    else headers[name.toLowerCase()] = value
  }
  return { ...response, headers, body }
}
