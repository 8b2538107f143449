import { createKeyring, type Keyring, type Purpose } from '../../src/keyring.ts'
import { Secret } from '../../src/secret.ts'

/**
 * A keyring that seals nothing: a hundred times as fast, with the same checks of purpose, context and key. The
 * sealed text stays readable for the rules of the simulation.
 */
export function createCheapKeyring(secrets: readonly string[]): Keyring {
  const newest = secrets[0]!
  let sealed = 0

  function sign(value: string, secret = newest): string {
    let hash = 2_166_136_261
    const text = `${secret} ${value}`
    for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 16_777_619)
    return (hash >>> 0).toString(16).padStart(8, '0').repeat(6).slice(0, 43)
  }

  function seal(purpose: Purpose, text: string, context: string): string {
    sealed += 1
    return `${newest}.${purpose}.${context}.${sealed}.${text}`
  }

  function open(purpose: Purpose, text: string, context: string): ReturnType<Keyring['open']> {
    const age = secrets.findIndex((secret) => text.startsWith(`${secret}.`))
    if (age < 0) return null
    const head = `${secrets[age]}.${purpose}.${context}.`
    if (!text.startsWith(head)) return null
    return { text: text.slice(text.indexOf('.', head.length) + 1), underOlderSecret: age > 0 }
  }

  return {
    sign: (value) => sign(value),
    verify(value, signature) {
      const age = secrets.findIndex((secret) => sign(value, secret) === signature)
      return age < 0 ? 'invalid' : age === 0 ? 'newest' : 'older'
    },
    seal,
    open,
    sealBinary: seal,
    openBinary: open,
    digitsOf: (_of, text) => text,
  }
}

/** The real keyring, with the readable text behind each sealed one. The mark between them is not part of the text. */
export function createReadableKeyring(secrets: readonly string[]): Keyring {
  const real = createKeyring(secrets.map((text) => new Secret(text.repeat(32))))
  const sealed = (text: string): string => text.slice(0, text.lastIndexOf('#'))
  return {
    ...real,
    seal: (purpose, text, context) => `${real.seal(purpose, text, context)}#${text}`,
    open: (purpose, text, context) => real.open(purpose, sealed(text), context),
    sealBinary: (purpose, text, context) => `${real.sealBinary(purpose, text, context)}#${text}`,
    openBinary: (purpose, text, context) => real.openBinary(purpose, sealed(text), context),
  }
}
