import type { FastifyReply, FastifyRequest } from 'fastify'
import { requestInLog, warnOnce } from '../log.ts'
import { PATHS } from '../paths.ts'
import type { LoginContext } from './context.ts'

const MAX_HOST = 200

/** A host that a client sent: bounded, and without characters that no host has. */
function inLog(host = ''): string {
  return host.slice(0, MAX_HOST).replace(/[^\x21-\x7e]/g, '?')
}

/**
 * Sends a sign-in that came by another host than that of `PUBLIC_URL` there (303), once: the login cookie and the
 * callback must share a host. Returns whether it did.
 */
export function createSendToPublicHost({
  config,
  cookies,
  log,
}: Pick<LoginContext, 'config' | 'cookies' | 'log'>) {
  const { publicUrl } = config
  const { protocol, host: publicHost } = new URL(publicUrl)
  let warned = false

  /** The parser writes the host in lower case, and leaves out the port that the scheme has anyway. */
  function isPublicHost(host: string | undefined): boolean {
    const address = `${protocol}//${host}`
    return host === publicHost || (URL.canParse(address) && new URL(address).host === publicHost)
  }

  function warn(request: FastifyRequest): void {
    if (warned) return
    warned = true
    const host = inLog(request.headers.host)
    warnOnce(
      log,
      { event: 'login.other_host', ...requestInLog(request), host, publicHost },
      `a sign-in came by the host ${host}, and PUBLIC_URL is ${publicUrl}: set PUBLIC_URL to the address that users open, or let the reverse proxy keep the Host header`,
    )
  }

  return function sendToPublicHost(request: FastifyRequest, reply: FastifyReply): boolean {
    const { host, cookie } = request.headers
    const wasSent = cookies.wasSentToPublicHost(cookie)
    // `request.host` is X-Forwarded-Host if the peer is in TRUST_PROXY.
    if (isPublicHost(host) || isPublicHost(request.host)) {
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
