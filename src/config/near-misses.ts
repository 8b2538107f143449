import type { Environment } from './read.ts'
import { VARIABLE_NAMES } from './variables.ts'

/** Shorter names are near too many others: an `APP_PORT` is no slip for `OPS_PORT`. */
const LONG = 9

/** A warning for each variable that looks like a slip for one that is read and is not set. */
export function nearMisses(env: Environment): string[] {
  const known = VARIABLE_NAMES.flatMap((name) => [name, `${name}_FILE`])
  const unset = VARIABLE_NAMES.filter((name) => !env[name] && !env[`${name}_FILE`])
  return Object.keys(env)
    .filter((given) => given.length >= 6 && !known.includes(given))
    .flatMap((given) => {
      const meant = unset.find((name) => edits(given.toUpperCase(), name) <= (name.length > LONG ? 2 : 1))
      return meant === undefined ? [] : [`${given} is not read: is ${meant} meant?`]
    })
}

/** How many letters lie between two words: put in, left out or changed (Levenshtein's distance). */
function edits(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at)
  for (const [at, letter] of [...one].entries()) {
    let before = at
    const next = [at + 1]
    for (const [column, wanted] of [...other].entries()) {
      next.push(Math.min(next[column]! + 1, row[column + 1]! + 1, before + (letter === wanted ? 0 : 1)))
      before = row[column + 1]!
    }
    row = next
  }
  return row.at(-1)!
}
