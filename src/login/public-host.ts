import type { FastifyReply, FastifyRequest } from 'fastify'
import { requestInLog } from '../log.ts'
import { PATHS } from '../paths.ts'
import type { LoginOptions } from './context.ts'

const MAX_HOST = 200
/** A name of 253 characters and a port. A parser of addresses would take milliseconds for one that fills the head. */
const LONGEST_HOST = 260

/** A host that a client sent: bounded, and without characters that no host has. */
function hostInLog(host = ''): string {
  return host.slice(0, MAX_HOST).replace(/[^\x21-\x7e]/g, '?')
}

/** Whether a request came by the host of `PUBLIC_URL`, which a proxy of `TRUST_PROXY` may name in `X-Forwarded-Host`. */
export function createCameByPublicHost(publicUrl: string): (request: FastifyRequest) => boolean {
  const { protocol, host: publicHost } = new URL(publicUrl)

  /** The parser writes the host in lower case, and leaves out the port that the scheme has anyway. */
  function isPublicHost(host = ''): boolean {
    if (host.length > LONGEST_HOST) return false
    const address = `${protocol}//${host}`
    return host === publicHost || (URL.canParse(address) && new URL(address).host === publicHost)
  }

  // `request.host` is X-Forwarded-Host if the peer is in TRUST_PROXY.
  return (request) => isPublicHost(request.headers.host) || isPublicHost(request.host)
}

/**
 * Sends a sign-in that came by another host than that of `PUBLIC_URL` there (303), once: the login cookie and the
 * callback must share a host. Returns whether it did.
 */
export function createSendToPublicHost({
  config,
  cookies,
  log,
}: Pick<LoginOptions, 'config' | 'cookies' | 'log'>) {
  const { publicUrl } = config
  const { host: publicHost } = new URL(publicUrl)
  const cameByPublicHost = createCameByPublicHost(publicUrl)
  let warned = false

  function warn(request: FastifyRequest): void {
    if (warned) return
    warned = true
    const host = hostInLog(request.headers.host)
    log.warn(
      { event: 'login.other_host', ...requestInLog(request), host, publicHost },
      `a sign-in came by the host ${host}, and PUBLIC_URL is ${publicUrl}: set PUBLIC_URL to the address that users open, or let the reverse proxy keep the Host header`,
    )
  }

  return function sendToPublicHost(request: FastifyRequest, reply: FastifyReply): boolean {
    const wasSent = cookies.wasSentToPublicHost(request.headers.cookie)
    if (cameByPublicHost(request)) {
      if (wasSent) cookies.forgetSentToPublicHost(reply)
      return false
    }
    warn(request)
    // The browser keeps the note only at the public host name, so a reverse proxy has changed `Host`.
    if (wasSent) return false
    cookies.noteSentToPublicHost(reply)
    const query = request.url.indexOf('?')
    reply.redirect(publicUrl + PATHS.login + (query < 0 ? '' : request.url.slice(query)), 303)
    return true
  }
}
