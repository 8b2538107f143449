import type { FastifyReply, FastifyRequest } from 'fastify'
import { type Problem, problem } from '../errors.ts'
import type { SessionCookies } from '../http/cookies.ts'
import { jsonResponse, plainResponse, problemOrPage } from '../http/openapi.ts'
import { type Logger, requestInLog } from '../log.ts'
import {
  type Devices,
  deviceProblem,
  inLog,
  NO_COOKIE,
  notLiveProblem,
  type RecordKey,
  type Vault,
} from '../vault/vault.ts'
import type { RequireDevice } from './session-info.ts'
import type { LoginEvents } from './sign-in.ts'

interface DeviceOptions {
  devices: Devices
  look: Vault['look']
  cookies: SessionCookies
  log: Logger
  observe: Pick<LoginEvents, 'bound' | 'deviceRefreshed'>
}

/** The routes of Device Bound Session Credentials. Browsers call them by themselves; both have an empty body. */
export function createDevices({ devices, look, cookies, log, observe }: DeviceOptions) {
  /**
   * `POST /auth/device`: a browser registers the key that it has made for the session of the challenge. It may come
   * without any cookie: browsers send none where a page of the authorization server began the navigation. Nothing is
   * enforced yet, so a registration that is lost or refused leaves a session that works.
   */
  async function register(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const found = devices.readRegistration(headerOf(request, 'secure-session-response'))
    if (found === null) throw faulty('Secure-Session-Response is no registration that this server asked for.')
    // Another host of this site may offer a registration of its own session here: it must not replace that of a device.
    const own = cookies.verifyIn(request.headers.cookie)?.recordKey ?? found.key
    if (own !== found.key && (await devices.registered(own)) !== null)
      throw faulty('This browser has another session, which has a device.')
    const { kind } = await devices.registerDevice(found.key, found.device)
    if (kind === 'gone') throw faulty('The session of this registration has ended.')
    if (kind === 'refused') throw faulty('The session has another device.')
    // Of a bound session only its device gets a cookie: a copied registration must not.
    if (kind === 'registered') cookies.setDevice(reply, devices.firstCookie(found.key))
    return reply.code(200).send(devices.instructions)
  }

  /** `POST /auth/device/refresh`: a browser proves that it has the key. The first proof binds the session. */
  async function refresh(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    try {
      return await prove(request, reply)
    } catch (error) {
      observe.deviceRefreshed((error as Partial<Problem>).status === 503 ? 'unavailable' : 'refused')
      throw error
    }
  }

  async function prove(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const key = cookies.verifyIn(request.headers.cookie)?.recordKey
    if (key === undefined) throw problem('login_required', NO_COOKIE)
    const device = await devices.registered(key)
    // The browser forgets its side: there is nothing to refresh.
    if (device === null) throw await noDeviceProblem(key, request)
    if (!devices.isProof(key, device, headerOf(request, 'secure-session-response'))) {
      observe.deviceRefreshed('challenged')
      return reply.code(403).header('secure-session-challenge', devices.challenge(key)).send()
    }
    const { kind } = await devices.bindDevice(key, device)
    if (kind === 'gone' || kind === 'refused') throw await noDeviceProblem(key, request)
    if (kind === 'bound') {
      observe.bound()
      log.info(
        { event: 'device.bound', ...requestInLog(request), recordKey: inLog(key) },
        'the session is bound to its device',
      )
    }
    observe.deviceRefreshed('granted')
    cookies.setDevice(reply, devices.cookie(key))
    return reply.code(200).send()
  }

  async function noDeviceProblem(key: RecordKey, request: FastifyRequest): Promise<Problem> {
    const found = await look(key, requestInLog(request))
    return found.kind === 'live'
      ? problem('login_required', 'The session has no such device.')
      : notLiveProblem(found)
  }

  return { register, refresh }
}

/** The device of a request below /auth: what src/vault/caller.ts does for calls. */
export function createRequireDevice({
  vault: { devices },
  cookies,
}: {
  vault: Pick<Vault, 'devices'>
  cookies: SessionCookies
}): RequireDevice {
  return (request, bound) => {
    const key = request.sessionCookie?.recordKey
    if (!bound || devices === null || key === undefined) return null
    const { headers } = request
    if (devices.provenUntil(key, cookies.readDevice(headers.cookie)) !== null) return null
    return deviceProblem(headers['secure-session-skipped'] !== undefined)
  }
}

function faulty(detail: string): Problem {
  return problem('invalid_request', detail)
}

function headerOf({ headers }: FastifyRequest, name: string): string | undefined {
  const value = headers[name]
  return typeof value === 'string' ? value : undefined
}

const TEXT = { type: 'string' }

/** JSON session instructions of the draft. */
export const INSTRUCTIONS_SCHEMA = {
  $id: 'SessionInstructions',
  type: 'object',
  required: ['session_identifier', 'refresh_url', 'scope', 'credentials'],
  properties: {
    session_identifier: TEXT,
    refresh_url: TEXT,
    scope: {
      type: 'object',
      properties: {
        include_site: { type: 'boolean' },
        scope_specification: {
          type: 'array',
          items: { type: 'object', properties: { type: TEXT, domain: TEXT, path: TEXT } },
        },
      },
    },
    credentials: {
      type: 'array',
      items: { type: 'object', properties: { type: TEXT, name: TEXT, attributes: TEXT } },
    },
  },
}

export const REGISTER_SCHEMA = {
  operationId: 'registerDevice',
  tags: ['session'],
  summary: 'A browser registers the key of its device (Device Bound Session Credentials)',
  security: [],
  response: {
    200: jsonResponse('The session instructions of the draft, with a device cookie.', 'SessionInstructions'),
    400: problemOrPage('invalid_request'),
    403: problemOrPage('cross_origin'),
    503: problemOrPage('store_unavailable'),
  },
}

export const REFRESH_SCHEMA = {
  operationId: 'refreshDevice',
  tags: ['session'],
  summary: 'A browser proves that it has the key of its device, and gets a new device cookie',
  security: [{ session: [] }],
  response: {
    200: plainResponse('A new device cookie.'),
    401: problemOrPage('login_required'),
    403: problemOrPage('cross_origin; or no body, and in `Secure-Session-Challenge` the challenge to sign'),
    503: problemOrPage('store_unavailable'),
  },
}
