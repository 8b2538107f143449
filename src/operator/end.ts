import type { Clock } from '../clock.ts'
import type { OperatorConfig } from '../config/operator.ts'
import { createKeyring } from '../keyring.ts'
import { createLog } from '../log.ts'
import { createAuthorizationServer } from '../oauth/client.ts'
import { createEndSession } from '../session/sessions.ts'
import type { RecordKey, SessionStore } from '../store/store.ts'
import { createRevoker } from '../tokens/revoker.ts'
import { findKey } from './find.ts'
import { countRevocation } from './revocation.ts'
import type { Terminal } from './terminal.ts'
import { batches } from './walk.ts'

export interface EndingOptions {
  store: SessionStore
  config: OperatorConfig
  terminal: Terminal
  clock: Clock
}

const REVOCATIONS_AT_ONCE = 8
/** How long the command waits for the last revocations. */
const REVOKED_WITHIN_MS = 5_000

/** Ends the session whose id begins so, if there is exactly one. Whether it did. */
export async function endOne(options: EndingOptions, id: string): Promise<boolean> {
  const { store, terminal } = options
  const found = await findKey(store, id)
  switch (found.kind) {
    case 'none':
      terminal.note(`There is no session whose id begins with ${id}.`)
      return false
    case 'several':
      terminal.note(`The ids of ${found.count} sessions begin with ${id}: give more of it.`)
      return false
    case 'one': {
      const ending = createEnding(options)
      const ended = await ending.end(found.key).finally(ending.settle)
      if (ended) await terminal.say(`ended ${found.key}`)
      else terminal.note(`There is no session with the id ${found.key}.`)
      return ended
    }
  }
}

/** Ends every session that was there when it began. */
export async function endAll(options: EndingOptions): Promise<boolean> {
  const { store, terminal } = options
  const ending = createEnding(options)
  let ended = 0
  try {
    for await (const keys of batches(store)) {
      for (const done of await Promise.all(keys.map(ending.end))) if (done) ended += 1
      terminal.progress(ended, 'sessions ended')
    }
  } finally {
    await terminal.say(`ended ${ended}`)
    await ending.settle()
  }
  return true
}

/** Ends sessions as a sign-out does; `settle` waits for what is to be revoked and tells what is not. */
function createEnding({ store, config, terminal, clock }: EndingOptions) {
  const { oauth, sessionSecrets } = config
  const authorizationServer =
    oauth && createAuthorizationServer({ oauth, concurrency: REVOCATIONS_AT_ONCE, clock })
  const counted = countRevocation(authorizationServer ?? { revoke: async () => null })
  const log = createLog('silent')
  const revoker = createRevoker({ authorizationServer: counted.authorizationServer, log })
  const endSession = createEndSession({
    store,
    keyring: createKeyring(sessionSecrets),
    revoke: revoker.revoke,
    log,
    onEnded() {},
    onUnreadable() {
      if (authorizationServer !== null) counted.unreadable()
    },
  })
  return {
    async end(key: RecordKey): Promise<boolean> {
      await revoker.room()
      return await endSession(key, 'operator')
    },
    async settle(): Promise<void> {
      await revoker.room()
      await revoker.stop(REVOKED_WITHIN_MS)
      await authorizationServer?.close()
      const unrevoked = counted.unrevoked()
      if (unrevoked > 0)
        terminal.note(`${unrevoked} tokens could not be revoked. They are good until they expire.`)
    },
  }
}
