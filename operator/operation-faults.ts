import { operationFaults } from '../src/config/checks.ts'
import { readVariables } from '../src/config/config.ts'
import { type Declarations, readOperations } from '../src/config/operations-file.ts'
import type { Environment } from '../src/config/secrets.ts'
import type { VariableName } from '../src/config/variables.ts'

/** The variables that a file of operations is held against. */
const RELATED: readonly VariableName[] = [
  ...(['WAC', 'WAC_ALLOWED', 'OAUTH_FLOWS', 'BASE_URL', 'AUTH_URL'] as const),
  ...(['OAUTH_AUTHORIZE_URL', 'OAUTH_TOKEN_URL', 'OAUTH_REVOCATION_URL', 'OAUTH_END_SESSION_URL'] as const),
]

/**
 * What a file of this text declares, and all that the server would find wrong with it, also between it and other variables
 * where one of them is set. Faults of those are not the file's.
 */
export function declarationsOf(text: string, env: Environment): Declarations & { faults: readonly string[] } {
  const { faults, ...declared } = readOperations(text)
  if (!RELATED.some((name) => env[name])) return { ...declared, faults }
  const read = readVariables(env, RELATED)
  const partial = read.ok ? new Set<VariableName>() : read.partial
  const others = operationFaults({ values: { ...read.values, OPERATIONS_FILE: declared }, partial })
  return {
    ...declared,
    faults: [...faults, ...others.map((fault) => fault.replace(/^OPERATIONS_FILE /, ''))],
  }
}
