import { createHash } from 'node:crypto'

/** Seeded random numbers: the same seed gives the same sequence. Not for secrets. */
export interface Random {
  /** In [0, 1). */
  next(): number
  /** A whole number from `from` to `to`, both included. */
  integer(from: number, to: number): number
  pick<T>(values: readonly T[]): T
  /** True with this probability. */
  chance(probability: number): boolean
}

export function createRandom(seed: string): Random {
  let state = createHash('sha256').update(seed).digest().readUInt32LE(0)

  // mulberry32
  function next(): number {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }

  return {
    next,
    integer: (from, to) => from + Math.floor(next() * (to - from + 1)),
    pick: (values) => values[Math.floor(next() * values.length)]!,
    chance: (probability) => next() < probability,
  }
}
