import { createKeyring } from '../src/keyring.ts'
import {
  type EndReason,
  forClientId,
  inLog,
  LOG_DIGITS,
  openTokens,
  passedLimit,
  type RecordKey,
  type SessionRecord,
} from '../src/vault/vault.ts'
import type { CommandOptions } from './cli.ts'
import { findEnded, findKey, severalBegin } from './end.ts'
import { asciiJson, iso } from './in-ascii.ts'

/**
 * Says what the record of one session shows, by the beginning of its id, or why it ended. False where nothing is known, or
 * there is more than one.
 */
export async function explain(
  options: CommandOptions,
  { id, json }: { id: string; json: boolean },
): Promise<boolean> {
  const { store, config, terminal, clock } = options
  const found = await findKey(store, id)
  if (found.kind === 'several') {
    terminal.warn(severalBegin(found, id))
    return false
  }
  const key = found.kind === 'one' ? found.key : null
  const record = key === null ? null : await store.read(key)
  if (key === null || record === null) return await explainEnded(options, { id, json })
  const opened = openTokens(createKeyring(config.sessionSecrets), key, record.tokens)
  const facts = factsOf(key, { record, tokens: opened?.tokens ?? null }, config.clientId, clock.wall())
  if (json) await terminal.print(asciiJson(facts))
  else for (const sentence of sentencesOf(facts)) await terminal.print(sentence)
  return true
}

/** What is known of a session that has no record. */
async function explainEnded(
  { store, terminal }: CommandOptions,
  { id, json }: { id: string; json: boolean },
): Promise<boolean> {
  const found = await findEnded(store, id)
  if (found.kind === 'several') {
    terminal.warn(severalBegin(found, id))
    return false
  }
  const end = found.kind === 'one' ? await store.readEnd(found.key) : null
  if (found.kind === 'none' || end === null) {
    terminal.warn(
      `There is no session whose id begins with ${id}. If there was one, it ended more than an hour ago, or Redis lost it.`,
    )
    terminal.warn(whereLogged(id))
    return false
  }
  const { reason, at } = end
  if (json) await terminal.print(asciiJson({ id: found.key, ended: { reason, at: iso(at) } }))
  else {
    await terminal.print(
      `Session ${inLog(found.key)} ended at ${iso(at)}: ${whyOf(reason)}. Its record is deleted.`,
    )
    await terminal.print(whereLogged(found.key))
  }
  return true
}

const WHY: Readonly<Record<EndReason, string>> = {
  logout: 'its user signed out',
  idle: 'its browser was not active for SESSION_IDLE_SECONDS',
  absolute: 'it reached SESSION_MAX_SECONDS, or had no refresh token and its access token expired',
  refused:
    'the platform refused its refresh token, or its only access token (refresh.refused in the log has the answer)',
  replaced: 'its browser signed in again',
  operator: 'npm run sessions ended it',
}

/** Another version of the server may have written a reason that this one does not know. */
function whyOf(reason: string): string {
  return Object.hasOwn(WHY, reason) ? WHY[reason as EndReason] : `the reason is ${reason}`
}

function whereLogged(id: string): string {
  const shown = inLog(id)
  const key = shown.length < LOG_DIGITS ? `a "recordKey" that begins with ${shown}` : `"recordKey":"${shown}"`
  return `In the log of all replicas, login.succeeded with ${key} says when a session began, session.ended when and why it ended, and whose it was.`
}

type Tokens = NonNullable<ReturnType<typeof openTokens>>['tokens']

/** `clientId`: null where CLIENT_ID is not set. */
function factsOf(
  key: RecordKey,
  stored: { record: SessionRecord; tokens: Tokens | null },
  clientId: string | null,
  now: number,
) {
  const { tokens: own } = stored
  const { record, tokens } =
    own === null || clientId === null
      ? stored
      : forClientId({ key, record: stored.record, tokens: own }, clientId)
  // A lease counts its doubt before it is one.
  const isUnderWay = record.lease !== '' && record.leaseUntil > now
  return {
    id: key,
    now: iso(now),
    createdAt: iso(record.createdAt),
    flow: record.flow,
    client: record.client,
    /** Whether a secret of SESSION_SECRET opens the tokens. */
    readable: tokens !== null,
    user: tokens?.user ?? null,
    lastSeenAt: iso(record.seenAt),
    idleExpiresAt: iso(record.idleEndsAt),
    expiresAt: iso(record.endsAt),
    passedLimit: passedLimit(record, now),
    refreshes: record.gen - 1,
    lastRefreshAt: record.gen > 1 && record.replacedAt > 0 ? iso(record.replacedAt) : null,
    /** CLIENT_ID is another client, so that the server does not refresh it. */
    otherClient: tokens !== own,
    refreshable: tokens === null ? null : tokens.refreshToken !== null,
    accessTokenExpiresAt: tokens === null ? null : iso(tokens.expiresAt),
    /** Presentations of this refresh token after which it may be used up. */
    doubts: record.doubts,
    refreshUnderWayUntil: record.leaseUntil > now ? iso(record.leaseUntil) : null,
    /** Whether the newest try to refresh brought no tokens. */
    refreshFails: record.doubts > (isUnderWay ? 1 : 0) || record.retryAt > 0,
    noRefreshBefore: record.retryAt > now ? iso(record.retryAt) : null,
    /** Whether the session cookie alone is worth nothing. `registered`: the device has a key and has not proven it yet. */
    device: deviceOf(record),
  }
}

const DEVICES = {
  none: 'It is not bound to a device: its browser has registered none.',
  registered: 'Its browser has registered a device and is yet to prove it, so the session is not bound.',
  bound: 'It is bound to the device of its browser: a copy of the session cookie is worth nothing.',
}

function deviceOf({ device, bound }: SessionRecord): keyof typeof DEVICES {
  if (bound) return 'bound'
  return device === '' ? 'none' : 'registered'
}

function sentencesOf(facts: ReturnType<typeof factsOf>): string[] {
  const { user, passedLimit: passed } = facts
  const last =
    facts.lastRefreshAt === null ? '' : `${facts.refreshes === 1 ? '' : ', last'} at ${facts.lastRefreshAt}`
  const sentences = [
    `Session ${inLog(facts.id)} began at ${facts.createdAt}, by the flow ${facts.flow} of the client ${facts.client}. It is now ${facts.now}.`,
    facts.readable
      ? user === null
        ? 'The platform did not say whose it is.'
        : `It belongs to the user ${user.id}${user.name === null ? '' : ` (${user.name})`}.`
      : 'No secret of SESSION_SECRET opens its tokens, so this server cannot use it.',
    passed === null
      ? `Its browser was last active at ${facts.lastSeenAt}. Without activity it ends at ${facts.idleExpiresAt}, in any case at ${facts.expiresAt}.`
      : `It has passed its ${passed} limit and ends when a replica looks at it.`,
    facts.refreshes === 0
      ? 'Its tokens were not refreshed yet.'
      : `Its tokens were refreshed ${times(facts.refreshes)}${last}.`,
    DEVICES[facts.device],
  ]
  if (passed !== null) return sentences
  const ofToken = ofAccessToken(facts)
  if (ofToken !== null) sentences.push(ofToken)
  if (facts.refreshUnderWayUntil !== null)
    sentences.push(
      `A refresh may be under way, or refreshes pause after a failover: no other begins before ${facts.refreshUnderWayUntil}.`,
    )
  else if (facts.doubts > 0 && !facts.otherClient)
    sentences.push(
      `The refresh token was presented ${times(facts.doubts)} without an answer that says whether it is used up (refresh.in_doubt in the log has what came; a replica that was killed logged nothing). It is presented again, at the latest when the access token has expired; if the platform refuses it then, the session ends with the reason refused.`,
    )
  if (facts.noRefreshBefore !== null)
    sentences.push(`After a failure no refresh is tried before ${facts.noRefreshBefore}.`)
  return sentences
}

/** null where the tokens cannot be read. */
function ofAccessToken(facts: ReturnType<typeof factsOf>): string | null {
  const { accessTokenExpiresAt: expires, refreshable, refreshFails, otherClient } = facts
  const why = otherClient
    ? 'CLIENT_ID is now another client, which cannot refresh it'
    : 'There is no refresh token'
  if (expires === null) return null
  if (expires > facts.now) {
    if (!refreshable) return `The access token expires at ${expires}. ${why}, so the session ends then.`
    if (refreshFails)
      return `The newest try to refresh failed. Calls work until the access token expires at ${expires}.`
    return `The access token expires at ${expires} and is refreshed before.`
  }
  if (!refreshable) return `The access token expired at ${expires}. ${why}, so the session ends.`
  if (refreshFails)
    return `The access token expired at ${expires}, and the newest try to refresh failed. Calls get 503 authorization_server_unavailable until one succeeds; the user stays signed in.`
  return `The access token expired at ${expires}. The next call refreshes it first, if no replica does.`
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`
}
