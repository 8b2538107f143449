import { createHash, randomBytes } from 'node:crypto'
import type { FastifyReply } from 'fastify'
import type { Keyring } from '../keyring.ts'
import type { SessionCookies } from '../session/cookies.ts'

/** What this server must remember between sending a browser away and its coming back. */
export interface Transaction {
  flow: 'code' | 'token'
  returnTo: string
  /** PKCE verifier; null when PKCE is off, and in the token flow. */
  verifier: string | null
  startedAt: number
}

/** Also how long a nonce stays claimed. */
export const TRANSACTION_MS = 600_000
const MAX_KEPT = 5
/** More would make a response head that proxies refuse; the rest goes with the next sign-ins. */
const MAX_DROPPED = 20

export interface Transactions {
  /** A new sign-in; sets its cookie and drops those that are too many or too old. */
  begin(
    reply: FastifyReply,
    header: string | undefined,
    what: Pick<Transaction, 'flow' | 'returnTo'>,
  ): { nonce: string; verifier: string | null }
  /** The transaction of this nonce if this browser began it and it is not too old, else null. */
  find(header: string | undefined, nonce: string): Transaction | null
  /** Whether this browser has begun any sign-in whose answer comes in the fragment. */
  awaitsFragment(header: string | undefined): boolean
  forget(reply: FastifyReply, nonce: string): void
}

/** A transaction as its cookie holds it, short; without `f` it is of the code flow. */
interface Sealed {
  f?: Transaction['flow']
  r: string
  v: string | null
  t: number
}

export interface TransactionsOptions {
  keyring: Keyring
  cookies: SessionCookies
  pkce: boolean
  now: () => number
}

/**
 * Sign-ins under way, each in a sealed cookie of its own at the browser: visitors who never come back
 * cost nothing here, and parallel tabs do not disturb each other.
 */
export function createTransactions({ keyring, cookies, pkce, now }: TransactionsOptions): Transactions {
  const { loginPrefix, setLogin } = cookies
  const idOf = (nonce: string): string => createHash('sha256').update(nonce).digest('base64url').slice(0, 16)

  function clear(reply: FastifyReply, id: string): void {
    setLogin(reply, { id, value: '', maxAgeSeconds: 0 })
  }

  function open(id: string, value: string): Transaction | null {
    const opened = keyring.open('login', value, id)
    if (opened === null) return null
    const { f = 'code', r, v, t } = JSON.parse(opened.text) as Sealed
    return now() - t < TRANSACTION_MS ? { flow: f, returnTo: r, verifier: v, startedAt: t } : null
  }

  function* sent(header: string | undefined): Generator<{ id: string; value: string }> {
    for (const pair of (header ?? '').split(';')) {
      const at = pair.indexOf('=')
      const name = pair.slice(0, at).trim()
      const id = name.startsWith(loginPrefix) ? name.slice(loginPrefix.length) : ''
      if (at > 0 && /^[A-Za-z0-9_-]{1,64}$/.test(id)) yield { id, value: pair.slice(at + 1).trim() }
    }
  }

  return {
    begin(reply, header, { flow, returnTo }) {
      const nonce = randomBytes(32).toString('base64url')
      const verifier = pkce && flow === 'code' ? randomBytes(32).toString('base64url') : null
      const sealed: Sealed = { r: returnTo, v: verifier, t: now() }
      const plain = JSON.stringify(flow === 'code' ? sealed : { ...sealed, f: flow })
      const id = idOf(nonce)
      const kept: { id: string; startedAt: number }[] = []
      for (const cookie of sent(header)) {
        kept.push({ id: cookie.id, startedAt: open(cookie.id, cookie.value)?.startedAt ?? 0 })
      }
      kept.sort((a, b) => b.startedAt - a.startedAt)
      const dropped = kept.filter((cookie, at) => cookie.startedAt === 0 || at >= MAX_KEPT - 1)
      for (const cookie of dropped.slice(0, MAX_DROPPED)) clear(reply, cookie.id)
      setLogin(reply, { id, value: keyring.seal('login', plain, id), maxAgeSeconds: TRANSACTION_MS / 1_000 })
      return { nonce, verifier }
    },

    find(header, nonce) {
      const id = idOf(nonce)
      for (const cookie of sent(header)) {
        const transaction = cookie.id === id ? open(id, cookie.value) : null
        if (transaction !== null) return transaction
      }
      return null
    },

    awaitsFragment: (header) => [...sent(header)].some(({ id, value }) => open(id, value)?.flow === 'token'),

    forget: (reply, nonce) => clear(reply, idOf(nonce)),
  }
}
