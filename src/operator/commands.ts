import type { Clock } from '../clock.ts'
import type { OperatorConfig } from '../config/operator.ts'
import { createKeyring } from '../keyring.ts'
import type { SessionStore } from '../store/store.ts'
import { createSeals } from '../tokens/reseal.ts'
import type { Command } from './arguments.ts'
import { describeSession } from './describe.ts'
import { endAll, endOne } from './end.ts'
import type { Terminal } from './terminal.ts'
import { batches, distinct } from './walk.ts'

export type Work = Exclude<Command, { kind: 'help' | 'wrong' }>

export interface CommandOptions {
  store: SessionStore
  config: OperatorConfig
  terminal: Terminal
  clock: Clock
}

/** Does what the operator asks for. Whether it is done. Rejects with `StoreUnavailable`. */
export async function perform(work: Work, options: CommandOptions): Promise<boolean> {
  const { store, terminal } = options
  switch (work.kind) {
    case 'count': {
      let sessions = 0
      for await (const keys of distinct(store)) sessions += keys.length
      await terminal.say(work.json ? JSON.stringify({ sessions }) : String(sessions))
      return true
    }
    case 'list': {
      for await (const keys of distinct(store)) {
        for (const [at, record] of (await Promise.all(keys.map(store.read))).entries()) {
          if (record !== null) await terminal.say(describeSession(keys[at]!, record, work.json))
        }
      }
      return true
    }
    case 'count_seals':
      return await countSeals(options, work.json)
    case 'reseal':
      return await reseal(options, work.json)
    case 'end':
      return await endOne(options, work.id)
    case 'end_all':
      return await endAll(options)
  }
}

async function countSeals(
  { store, config, terminal, clock }: CommandOptions,
  json: boolean,
): Promise<boolean> {
  const seals = createSeals({ store, keyring: createKeyring(config.sessionSecrets), now: clock.wall })
  const found = { older: 0, unreadable: 0, newest: 0 }
  for await (const keys of distinct(store)) {
    for (const seal of await Promise.all(keys.map(seals.look))) if (seal !== null) found[seal] += 1
    terminal.progress(found.older + found.unreadable + found.newest, 'looked at')
  }
  await tell(terminal, found, json)
  return true
}

async function reseal({ store, config, terminal, clock }: CommandOptions, json: boolean): Promise<boolean> {
  const seals = createSeals({ store, keyring: createKeyring(config.sessionSecrets), now: clock.wall })
  const found = { resealed: 0, older: 0, unreadable: 0, newest: 0 }
  for await (const keys of batches(store)) {
    for (const seal of await Promise.all(keys.map(seals.renew))) if (seal !== null) found[seal] += 1
    terminal.progress(found.resealed + found.older + found.unreadable + found.newest, 'looked at')
  }
  await tell(terminal, found, json)
  return found.older === 0
}

async function tell(terminal: Terminal, found: Record<string, number>, json: boolean): Promise<void> {
  if (json) return await terminal.say(JSON.stringify(found))
  for (const [name, count] of Object.entries(found)) await terminal.say(`${name} ${count}`)
}
