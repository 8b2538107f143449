import { Agent, type Dispatcher } from 'undici'
import type { Config } from '../src/config/config.ts'
import type { Egress } from '../src/config/egress.ts'
import { connectorTo, EgressFailure, readStart } from '../src/egress.ts'
import { USER_AGENT } from '../src/version.ts'

export const TIMEOUT_MS = 5_000
const MAX_BODY_BYTES = 262_144
const DIRECT: Egress = { https: null, http: null, exempt: [] }

export interface Response {
  status: number
  location: string | null
  /** Epoch milliseconds of the `Date` field, or null. */
  date: number | null
  contentType: string
  server: string
  /** Each `Set-Cookie`. */
  setCookies: readonly string[]
  body: string
}

/** The response to one GET without following redirects, or the code of the failure, for example ECONNREFUSED. */
export async function get(
  url: string,
  accept: string,
  egress: Egress = DIRECT,
  fixed: Config['upstream']['headers'] = [],
  cookie = '',
): Promise<Response | string> {
  const own = Object.fromEntries(fixed.map(({ name, value }) => [name, value.reveal()]))
  const cookies = cookie === '' ? {} : { cookie }
  const dispatcher: Dispatcher = new Agent({ connect: connectorTo(url, egress, TIMEOUT_MS) })
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS)
    const { origin, pathname, search } = new URL(url)
    const { statusCode, headers, body } = await dispatcher.request({
      origin,
      path: `${pathname}${search}`,
      method: 'GET',
      headers: { accept, 'user-agent': USER_AGENT, ...cookies, ...own },
      signal,
    })
    const field = (name: string): string | null => {
      const value = headers[name]
      return (Array.isArray(value) ? value[0] : value) ?? null
    }
    const date = Date.parse(field('date') ?? '')
    return {
      status: statusCode,
      location: field('location'),
      date: Number.isNaN(date) ? null : date,
      contentType: field('content-type') ?? '',
      server: field('server') ?? '',
      setCookies: [headers['set-cookie'] ?? []].flat(),
      body: String((await readStart(body, MAX_BODY_BYTES)).bytes),
    }
  } catch (error) {
    if (error instanceof EgressFailure) return error.message
    const { code, name } = error as NodeJS.ErrnoException
    return name === 'TimeoutError' ? 'no response within 5 s' : typeof code === 'string' ? code : name
  } finally {
    await dispatcher.destroy()
  }
}

/** This address with a slash at the end of its path. */
export function withSlash(address: string): string {
  return address.replace(/(?=\?|$)/, '/')
}

/** Codes that Node gives a certificate that it does not trust. */
const CERTIFICATE = /CERT|SIGNATURE|SELF_SIGNED|ISSUER/

/** Whether a reason why a server cannot be reached is its certificate. */
export function isCertificate(reason: string): boolean {
  return CERTIFICATE.test(reason)
}

/** Why a server cannot be reached, in words, with what to check. */
export function unreachable(what: string, reason: string, variable: string): string {
  if (reason.startsWith('the egress proxy')) return `the ${what} cannot be reached: ${reason}`
  if (reason === 'ERR_SSL_WRONG_VERSION_NUMBER')
    return `the ${what} speaks no TLS at this address (${reason}): check port and scheme of ${variable}, perhaps it is http`
  return isCertificate(reason)
    ? `the certificate of the ${what} is not trusted (${reason}): check the host name in ${variable}, and NODE_EXTRA_CA_CERTS for an own CA`
    : `the ${what} cannot be reached (${reason}): check ${variable} and that the platform runs`
}
