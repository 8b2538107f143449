/**
 * A seeded generator of pseudo-random numbers (sfc32). Settings, faults and each party draw from streams of their
 * own, so that the faults that are left keep their times when others are left out. What the parties do after that
 * is another history.
 */
export class Random {
  #a: number
  #b: number
  #c: number
  #counter = 1

  constructor(seed: number, stream: string) {
    let hash = 2_166_136_261 ^ seed
    for (let at = 0; at < stream.length; at += 1) hash = Math.imul(hash ^ stream.charCodeAt(at), 16_777_619)
    this.#a = hash | 0
    this.#b = Math.imul(seed ^ (hash >>> 7), 0x9e3779b1) | 0
    this.#c = (Math.floor(seed / 4_294_967_296) ^ 0x85ebca6b) | 0
    for (let warmUp = 0; warmUp < 12; warmUp += 1) this.bits()
  }

  /** 32 bits, as an integer from 0. */
  bits(): number {
    const sum = (((this.#a + this.#b) | 0) + this.#counter) | 0
    this.#counter = (this.#counter + 1) | 0
    this.#a = this.#b ^ (this.#b >>> 9)
    this.#b = (this.#c + (this.#c << 3)) | 0
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) | 0
    return sum >>> 0
  }

  /** In [0, 1). */
  next(): number {
    return this.bits() / 4_294_967_296
  }

  chance(probability: number): boolean {
    return this.next() < probability
  }

  between(low: number, high: number): number {
    return low + this.next() * (high - low)
  }

  /** An integer from 0 to `count` - 1. */
  int(count: number): number {
    return Math.floor(this.next() * count)
  }

  pick<T>(list: readonly T[]): T {
    return list[this.int(list.length)]!
  }

  /** One of the names, each as often as its weight says. */
  weighted<Name extends string>(weights: Partial<Record<Name, number>>): Name {
    const entries = Object.entries(weights) as [Name, number][]
    let left = this.next() * entries.reduce((sum, [, weight]) => sum + weight, 0)
    for (const [name, weight] of entries) {
      left -= weight
      if (left < 0) return name
    }
    return entries[entries.length - 1]![0]
  }
}
