import { inspect } from 'node:util'

/**
 * A value that must not be printed. JSON, templates, string concatenation and `util.inspect` (so every logger)
 * yield `[secret]`; only `reveal()` returns the value.
 */
export class Secret {
  readonly #value: string

  constructor(value: string) {
    this.#value = value
  }

  reveal(): string {
    return this.#value
  }

  toString(): string {
    return '[secret]'
  }

  toJSON(): string {
    return '[secret]'
  }

  [inspect.custom](): string {
    return '[secret]'
  }
}
