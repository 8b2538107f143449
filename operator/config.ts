import { type Config, readVariables, toEgress, toOauth, toStore } from '../src/config/config.ts'
import type { Environment } from '../src/config/secrets.ts'
import { EGRESS_NAMES, OAUTH_NAMES, STORE_NAMES } from '../src/config/variables.ts'

/** What an operator's command needs besides the session store. */
interface OperatorNeeds {
  /** It opens sealed tokens. */
  readonly secrets: boolean
  /** It revokes tokens, where there is an endpoint. */
  readonly revocation: boolean
  /** It looks for sessions of a user. */
  readonly users?: boolean
  /** It says what becomes of a session, which depends on its client. */
  readonly client?: boolean
}

export interface OperatorConfig {
  readonly store: Extract<Config['store'], { kind: 'redis' }>
  readonly idleSeconds: number
  /** Empty where the command does not need them. */
  readonly sessionSecrets: Config['sessionSecrets']
  /** Whether the platform is asked who signs in. False where the command does not need to know. */
  readonly hasIdentity: boolean
  /** null where it is not set, or the command does not need it. */
  readonly clientId: string | null
  /** null where nothing is revoked. */
  readonly platform: Pick<Config, 'oauth' | 'egress'> | null
}

type ParsedOperatorConfig =
  | { readonly ok: true; readonly config: OperatorConfig }
  | { readonly ok: false; readonly faults: readonly string[] }

/** The part of the server's configuration that a command needs, or every fault in that part. */
export function parseOperatorConfig(env: Environment, needs: OperatorNeeds): ParsedOperatorConfig {
  const revokes = needs.revocation && Boolean(env.OAUTH_REVOCATION_URL)
  const base = readVariables(env, [...STORE_NAMES, 'SESSION_IDLE_SECONDS'])
  const secrets = needs.secrets ? readVariables(env, ['SESSION_SECRET']) : null
  const oauth = revokes ? readVariables(env, [...OAUTH_NAMES, ...EGRESS_NAMES, 'ALLOW_INSECURE_HTTP']) : null
  const users = needs.users === true ? readVariables(env, ['OPERATIONS_FILE', 'WAC']) : null
  const client = needs.client === true && env.CLIENT_ID ? readVariables(env, ['CLIENT_ID']) : null
  const faults = [base, secrets, oauth, users, client].flatMap((read) =>
    read === null || read.ok ? [] : read.faults,
  )
  const store = base.ok ? toStore(base.values) : null
  if (store?.kind === 'memory')
    faults.push('SESSION_STORE must be redis: sessions in memory are out of reach for a command')
  if (
    !base.ok ||
    store?.kind !== 'redis' ||
    secrets?.ok === false ||
    oauth?.ok === false ||
    users?.ok === false ||
    client?.ok === false
  )
    return { ok: false, faults }
  return {
    ok: true,
    config: {
      store,
      idleSeconds: base.values.SESSION_IDLE_SECONDS,
      hasIdentity: (users?.values.OPERATIONS_FILE?.identity ?? null) !== null,
      sessionSecrets: secrets?.values.SESSION_SECRET ?? [],
      clientId: client?.values.CLIENT_ID ?? null,
      platform: oauth === null ? null : { oauth: toOauth(oauth.values), egress: toEgress(oauth.values) },
    },
  }
}
