import type { FastifyReply } from 'fastify'
import { PATHS } from '../paths.ts'
import { sendPage } from './pages.ts'

/**
 * Hands the answer in the fragment to this server and goes where that says. The fragment is taken out of
 * the address first, so that no page of this tab leads back to it; what the browser has noted of its visits
 * by then, no script can take back.
 */
const SCRIPT = `(async () => {
  const members = {}
  const answer = new URLSearchParams(location.hash.slice(1))
  for (const [name, value] of answer) members[name] = Object.hasOwn(members, name) ? [value] : value
  history.replaceState(null, '', location.pathname)
  const path = location.pathname === '${PATHS.callback}' ? '${PATHS.callback}/' + encodeURIComponent(answer.get('state')) : location.pathname
  const response = await fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(members),
  })
  const next = response.headers.get('location')
  if (next !== null) return location.replace(next)
  const { detail, loginUrl } = await response.json()
  tell(detail)
  if (loginUrl !== undefined) document.querySelector('a').href = loginUrl
})().catch(() => tell('The sign-in could not be completed.'))
function tell(text) {
  document.querySelector('p').textContent = text
}`

/** For any other page at the callback's address: a token that is not wanted stays in no address either. */
export const FORGET_FRAGMENT = `if (location.hash) history.replaceState(null, '', location.pathname + location.search)`

/** The page on which a sign-in of the token flow ends; `retry` is where to begin it again. */
export function sendFragmentPage(reply: FastifyReply, retry: string): FastifyReply {
  return sendPage(reply, {
    status: 200,
    title: 'Signing in',
    text: 'One moment, please. This step needs JavaScript.',
    link: { href: retry, words: 'Begin again' },
    script: SCRIPT,
  })
}
