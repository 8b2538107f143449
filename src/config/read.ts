import { relationFaults } from './checks.ts'
import { Refused } from './kinds.ts'
import { given } from './secrets.ts'
import type { Values, VariableName } from './variables.ts'
import { TABLE } from './variables.ts'

export type Environment = Readonly<Record<string, string | undefined>>

export type ReadVariables<Name extends VariableName> =
  | { readonly ok: true; readonly values: Pick<Values, Name> }
  | { readonly ok: false; readonly faults: readonly string[] }

/** The values of these variables, or every fault in them and between them; no other is looked at. */
export function readVariables<Name extends VariableName>(
  env: Environment,
  names: readonly Name[],
): ReadVariables<Name> {
  const read = new Map<string, unknown>()
  const faults: string[] = []
  for (const name of names) {
    const value = readValue(TABLE[name], given(env, name, TABLE[name].secret))
    if (value instanceof Refused) faults.push(`${name} ${value.problem}`)
    else read.set(name, value)
  }
  const values = Object.fromEntries(read) as Partial<Values>
  faults.push(...relationFaults(values))
  return faults.length > 0 ? { ok: false, faults } : { ok: true, values: values as Pick<Values, Name> }
}

function readValue(variable: (typeof TABLE)[VariableName], text: string | null | Refused): unknown {
  if (text instanceof Refused) return text
  const effective = text ?? variable.default
  if (effective !== null) return variable.kind.read(effective)
  return variable.required ? new Refused(`is required: ${variable.meaning}`) : null
}
