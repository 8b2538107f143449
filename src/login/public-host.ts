import type { FastifyReply, FastifyRequest } from 'fastify'
import { requestInLog, warnOnce } from '../log.ts'
import { PATHS } from '../paths.ts'
import type { LoginContext } from './context.ts'

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
    warnOnce(
      log,
      {
        event: 'login.other_host',
        ...requestInLog(request),
        host: request.headers.host?.slice(0, 200),
        publicHost,
      },
      'a sign-in came by another host than that of PUBLIC_URL and was sent there: open the page at PUBLIC_URL, or let the reverse proxy keep the Host header',
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
