import { createKeyring } from '../src/keyring.ts'
import { createLog } from '../src/log.ts'
import { type AuthorizationClient, createAuthorizationClient } from '../src/oauth/client.ts'
import type { Secret } from '../src/secret.ts'
import { createSessionEnd, type RecordKey, type SessionStore } from '../src/vault/vault.ts'
import type { CommandOptions } from './cli.ts'
import { batches, distinct } from './scan.ts'
import { nothingSeen, reportUser, sessionsOf } from './user.ts'

const REVOCATIONS_AT_ONCE = 8
/** After this time the command says what it waits for. */
const SAY_AFTER_MS = 2_000

/** The key of the session whose id begins with `id`. null, after a warning, where there is none or more than one. */
async function findOne(
  { store, terminal }: Pick<CommandOptions, 'store' | 'terminal'>,
  id: string,
): Promise<RecordKey | null> {
  const found = await findKey(store, id)
  if (found.kind === 'one') return found.key
  terminal.warn(
    found.kind === 'none' ? `There is no session whose id begins with ${id}.` : severalBegin(found, id),
  )
  return null
}

export function severalBegin({ count }: { count: number }, id: string): string {
  return `The ids of ${count} sessions begin with ${id}: add more digits.`
}

/** Ends the session whose id begins with `id`. False where there is none or more than one. */
export async function endOne(options: CommandOptions, id: string): Promise<boolean> {
  const { terminal } = options
  const key = await findOne(options, id)
  if (key === null) return false
  const ending = createEnding(options)
  const ended = await ending.end(key).finally(ending.finish)
  if (ended) await terminal.print(`ended ${key}`)
  else terminal.warn(`There is no session with the id ${key}.`)
  return ended
}

/** Ends every session that existed when the command started. */
export async function endAll(options: CommandOptions): Promise<boolean> {
  const { store, terminal } = options
  const ending = createEnding(options)
  let ended = 0
  try {
    for await (const keys of batches(store)) {
      for (const done of await Promise.all(keys.map(ending.end))) if (done) ended += 1
      terminal.progress(ended, 'sessions ended')
    }
  } finally {
    await terminal.print(`ended ${ended}`)
    await ending.finish()
  }
  return true
}

/** Ends every session of one user. False where there is none, or where a session could not be opened. */
export async function endUser(options: CommandOptions, user: string): Promise<boolean> {
  const { terminal } = options
  const ending = createEnding(options)
  const seen = nothingSeen()
  let ended = 0
  try {
    for await (const { key } of sessionsOf(user, options, seen)) if (await ending.end(key)) ended += 1
  } finally {
    await terminal.print(`ended ${ended}`)
    await ending.finish()
  }
  return reportUser(options, user, seen)
}

type FoundKey = { kind: 'one'; key: RecordKey } | { kind: 'none' } | { kind: 'several'; count: number }

const WHOLE_ID = 64

/** The session whose id begins with `beginning`. A whole id is not looked up. */
export async function findKey(store: Pick<SessionStore, 'keys'>, beginning: string): Promise<FoundKey> {
  return await findIn(distinct(store), beginning)
}

/** The session that has ended, whose id begins with `beginning` and whose reason is kept. */
export async function findEnded(
  store: Pick<SessionStore, 'endedKeys'>,
  beginning: string,
): Promise<FoundKey> {
  return await findIn(distinct({ keys: () => store.endedKeys(beginning) }), beginning)
}

async function findIn(batches: AsyncIterable<RecordKey[]>, beginning: string): Promise<FoundKey> {
  if (beginning.length === WHOLE_ID) return { kind: 'one', key: beginning }
  let first: RecordKey | null = null
  let count = 0
  for await (const batch of batches) {
    for (const key of batch) {
      if (!key.startsWith(beginning)) continue
      first ??= key
      count += 1
    }
  }
  if (first === null) return { kind: 'none' }
  return count === 1 ? { kind: 'one', key: first } : { kind: 'several', count }
}

/** Ends sessions as a logout does. `finish` waits for the revocations and reports those that failed. */
function createEnding({ store, config, terminal, clock }: CommandOptions) {
  const { platform, sessionSecrets } = config
  const authorizationClient =
    platform && createAuthorizationClient({ ...platform, concurrency: REVOCATIONS_AT_ONCE, clock })
  const counted = countRevocation(authorizationClient ?? { revoke: async () => null })
  const audit = createLog('info', { write: (line: string) => terminal.warn(line.trimEnd()) })
  const ending = createSessionEnd({
    store,
    keyring: createKeyring(sessionSecrets),
    authorizationClient: counted.authorizationClient,
    log: createLog('silent'),
    audit,
    onUnreadable() {
      if (authorizationClient !== null) counted.unreadable()
    },
  })
  return {
    end: ending.end,
    async finish(): Promise<void> {
      const say = (): void => terminal.warn('Waiting until tokens are revoked, a minute at most.')
      const timer = setTimeout(say, SAY_AFTER_MS)
      await ending.finish()
      clearTimeout(timer)
      await authorizationClient?.close()
      const unrevoked = counted.unrevoked()
      if (unrevoked > 0)
        terminal.warn(`${unrevoked} tokens could not be revoked. They are valid until they expire.`)
    },
  }
}

interface CountedRevocation {
  authorizationClient: Pick<AuthorizationClient, 'revoke'>
  /** Counts a session whose tokens cannot be read. */
  unreadable(): void
  /** Tokens that were to be revoked and are not known to be. */
  unrevoked(): number
}

/** After this many failures in a row the endpoint is not asked again: there may be a million sessions. */
const MAX_FAILURES = 20

/** Counts the tokens that are not revoked, and stops asking an endpoint that keeps failing. */
export function countRevocation(authorizationClient: Pick<AuthorizationClient, 'revoke'>): CountedRevocation {
  let unrevoked = 0
  let failures = 0
  // One is tried again after a failure.
  const seen = new WeakSet<Secret>()

  return {
    unreadable() {
      unrevoked += 1
    },
    unrevoked: () => unrevoked,
    authorizationClient: {
      async revoke(token, hint, withinMs) {
        // Counted until the response arrives: this process may end before that.
        if (!seen.has(token)) unrevoked += 1
        seen.add(token)
        if (failures >= MAX_FAILURES) return null
        const failure = await authorizationClient.revoke(token, hint, withinMs)
        if (failure === null) unrevoked -= 1
        failures = failure === null ? 0 : failures + 1
        return failure
      },
    },
  }
}
