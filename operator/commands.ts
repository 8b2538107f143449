import { createKeyring } from '../src/keyring.ts'
import type { RecordKey, SessionRecord } from '../src/vault/vault.ts'
import type { Command, CommandOptions, Terminal } from './cli.ts'
import { endAll, endOne, endUser } from './end.ts'
import { explain } from './explain.ts'
import { asciiJson, iso } from './in-ascii.ts'
import { reseal, type SealOptions, sealOf } from './reseal.ts'
import { batches, distinct } from './scan.ts'
import { nothingSeen, reportUser, sessionsOf } from './user.ts'

/** Runs a command. Resolves with whether it is done. Rejects with `StoreUnavailable`. */
export async function runCommand(
  command: Exclude<Command, { kind: 'help' | 'version' | 'wrong' }>,
  options: CommandOptions,
): Promise<boolean> {
  switch (command.kind) {
    case 'count':
      return await count(options, command.json)
    case 'list':
      return command.user === null
        ? await list(options, command.json)
        : await listUser(options, { user: command.user, json: command.json })
    case 'count_seals':
      return await countSeals(options, command.json)
    case 'reseal':
      return await resealAll(options, command.json)
    case 'explain':
      return await explain(options, command)
    case 'end':
      return await endOne(options, command.id)
    case 'end_user':
      return await endUser(options, command.user)
    case 'end_all':
      return await endAll(options)
  }
}

async function count({ store, terminal }: CommandOptions, json: boolean): Promise<boolean> {
  let sessions = 0
  for await (const keys of distinct(store)) sessions += keys.length
  await terminal.print(json ? JSON.stringify({ sessions }) : String(sessions))
  return true
}

async function list({ store, terminal }: CommandOptions, json: boolean): Promise<boolean> {
  const show = createLister(terminal, json)
  for await (const keys of distinct(store)) {
    for (const [at, record] of (await Promise.all(keys.map(store.read))).entries()) {
      if (record !== null) await show(keys[at]!, record)
    }
  }
  return true
}

async function listUser(
  options: CommandOptions,
  { user, json }: { user: string; json: boolean },
): Promise<boolean> {
  const show = createLister(options.terminal, json)
  const found = nothingSeen()
  for await (const { key, record } of sessionsOf(user, options, found)) await show(key, record)
  return reportUser(options, user, found)
}

const COLUMNS = ['id', 'sign-in', 'last activity', 'idle end', 'flow', 'generation', 'client', 'device']

/** Prints sessions. What the columns are goes to stderr, so that each line of stdout is a session. */
function createLister(terminal: Terminal, json: boolean) {
  let isFirst = true
  return async (key: RecordKey, record: SessionRecord): Promise<void> => {
    const session = describeSession(key, record)
    if (json) return await terminal.print(asciiJson(session))
    if (isFirst) terminal.warn(COLUMNS.join('  '))
    isFirst = false
    await terminal.print(toLine(session))
  }
}

/** A session without anything that opens it. */
function describeSession(key: RecordKey, record: SessionRecord) {
  return {
    id: key,
    createdAt: iso(record.createdAt),
    lastSeenAt: iso(record.seenAt),
    idleExpiresAt: iso(record.idleEndsAt),
    expiresAt: iso(record.endsAt),
    flow: record.flow,
    client: record.client,
    generation: record.gen,
    /** Whether the session cookie alone is worth nothing. */
    bound: record.bound,
  }
}

type Description = ReturnType<typeof describeSession>

function toLine(session: Description): string {
  const { id, createdAt, lastSeenAt, idleExpiresAt, flow, generation, client, bound } = session
  const device = bound ? 'bound' : 'unbound'
  return [id, createdAt, lastSeenAt, idleExpiresAt, flow, generation, client, device].join('  ')
}

async function countSeals(options: CommandOptions, json: boolean): Promise<boolean> {
  const { store, terminal } = options
  const seals = sealOptions(options)
  const found = { older: 0, unreadable: 0, newest: 0 }
  for await (const keys of distinct(store)) {
    for (const seal of await Promise.all(keys.map((key) => sealOf(key, seals))))
      if (seal !== null) found[seal] += 1
    terminal.progress(found.older + found.unreadable + found.newest, 'sessions read')
  }
  await printCounts(terminal, found, json)
  return true
}

async function resealAll(options: CommandOptions, json: boolean): Promise<boolean> {
  const { store, terminal } = options
  const seals = sealOptions(options)
  const found = { resealed: 0, older: 0, unreadable: 0, newest: 0 }
  for await (const keys of batches(store)) {
    for (const seal of await Promise.all(keys.map((key) => reseal(key, seals))))
      if (seal !== null) found[seal] += 1
    terminal.progress(found.resealed + found.older + found.unreadable + found.newest, 'sessions read')
  }
  await printCounts(terminal, found, json)
  return found.older === 0
}

function sealOptions({ store, config }: CommandOptions): SealOptions {
  return { store, keyring: createKeyring(config.sessionSecrets) }
}

async function printCounts(terminal: Terminal, found: Record<string, number>, json: boolean): Promise<void> {
  if (json) return await terminal.print(JSON.stringify(found))
  for (const [name, count] of Object.entries(found)) await terminal.print(`${name} ${count}`)
}
