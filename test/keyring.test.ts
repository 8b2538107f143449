import { createHmac, randomBytes } from 'node:crypto'
import { inspect } from 'node:util'
import t from 'tap'
import { createKeyring, type Purpose } from '../src/keyring.ts'
import { Secret } from '../src/secret.ts'

const A = 'the first secret of at least 32 characters'
const B = 'the second secret of at least 32 characters'
const ring = (...secrets: string[]) => createKeyring(secrets.map((secret) => new Secret(secret)))
const PURPOSES: Purpose[] = ['tokens', 'login', 'record-key']

t.test('a keyring without a secret is refused', async (t) => {
  t.throws(() => createKeyring([]), /at least one secret/)
})

t.test('a signature is 43 characters of base64url, the same for the same value in any process', async (t) => {
  const signature = ring(A).sign('value')
  t.match(signature, /^[A-Za-z0-9_-]{43}$/)
  t.equal(ring(A).sign('value'), signature)
  t.not(ring(A).sign('valuf'), signature)
  t.not(ring(B).sign('value'), signature)
  t.not(createHmac('sha256', A).update('value').digest('base64url'), signature, 'the key is a derived one')
})

t.test('the newest secret signs, every secret of the list verifies', async (t) => {
  const signature = ring(A).sign('value')
  t.equal(ring(A).verify('value', signature), 'newest')
  t.equal(ring(A, B).verify('value', signature), 'newest')
  t.equal(ring(B, A).verify('value', signature), 'older')
  t.equal(ring(B).verify('value', signature), 'invalid')
  t.equal(ring(B, A).verify('value', ring(B, A).sign('value')), 'newest')
  t.equal(ring(A, B).verify('value', ring(B, A).sign('value')), 'older', 'in a rolling change')
})

t.test('a changed or cut signature, or one of another value, is invalid', async (t) => {
  const keyring = ring(A, B)
  const signature = keyring.sign('value')
  const other = (character: string) => (character === 'A' ? 'B' : 'A')
  const wrong = [
    '',
    signature.slice(1),
    signature.slice(0, -1),
    `${signature}A`,
    `${signature}=`,
    signature.toUpperCase(),
    'ü'.repeat(43),
    ...Array.from(signature, (char, i) => signature.slice(0, i) + other(char) + signature.slice(i + 1)),
  ]
  for (const one of wrong) t.equal(keyring.verify('value', one), 'invalid', one)
  t.equal(keyring.verify('other', signature), 'invalid')
})

for (const [form, seal, open] of [
  ['text', 'seal', 'open'],
  ['bytes', 'sealBinary', 'openBinary'],
] as const) {
  t.test(`a text that is sealed as ${form} opens for its purpose and context alone`, async (t) => {
    const keyring = ring(A)
    for (const purpose of PURPOSES) {
      for (const text of ['', 'text', 'ü€\u0000"', 'x'.repeat(10_000)]) {
        const sealed = keyring[seal](purpose, text, 'context')
        t.strictSame(keyring[open](purpose, sealed, 'context'), { text, underOlderSecret: false })
        for (const other of PURPOSES)
          if (other !== purpose)
            t.equal(keyring[open](other, sealed, 'context'), null, `${purpose} as ${other}`)
        for (const context of ['', 'contex', 'context ', `${purpose}:context`])
          t.equal(keyring[open](purpose, sealed, context), null, context)
      }
    }
  })

  t.test(
    `a text is sealed as ${form} by the newest secret, and opens by every secret of the list`,
    async (t) => {
      const sealed = ring(A)[seal]('tokens', 'text', 'context')
      const opened = (...secrets: string[]) => ring(...secrets)[open]('tokens', sealed, 'context')
      t.strictSame(opened(A, B), { text: 'text', underOlderSecret: false })
      t.strictSame(opened(B, A), { text: 'text', underOlderSecret: true })
      t.equal(opened(B), null)
      const again = ring(B, A)[seal]('tokens', 'text', 'context')
      t.strictSame(ring(B)[open]('tokens', again, 'context'), { text: 'text', underOlderSecret: false })
      t.strictSame(ring(A, B)[open]('tokens', again, 'context'), { text: 'text', underOlderSecret: true })
      const many = Array.from({ length: 100 }, () => ring(A)[seal]('tokens', 'text', 'context'))
      t.equal(new Set(many).size, 100, 'differently each time')
    },
  )
}

t.test('a sealed text is unreadable; as bytes it is shorter, and bytes do not open as a text', async (t) => {
  const keyring = ring(A)
  for (const text of ['text', 'ü€\u0000"', 'x'.repeat(10_000)]) {
    const sealed = keyring.seal('tokens', text, 'context')
    t.match(sealed, /^[A-Za-z0-9_-]{8}\.[A-Za-z0-9_-]+$/)
    t.notOk(Buffer.from(sealed.slice(9), 'base64url').includes(text))
    const bytes = keyring.sealBinary('tokens', text, 'context')
    t.ok(bytes.length <= 6 + 12 + Buffer.byteLength(text) + 16 + 10, 'at most ten bytes more than it was')
    t.equal(keyring.open('tokens', bytes, 'context'), null)
  }
})

t.test('sealed bytes with any byte changed or cut do not open', async (t) => {
  const keyring = ring(A)
  const sealed = keyring.sealBinary('tokens', 'text', 'context')
  for (let at = 0; at < sealed.length; at += 1) {
    const changed = `${sealed.slice(0, at)}${String.fromCharCode(sealed.charCodeAt(at) ^ 1)}${sealed.slice(at + 1)}`
    t.equal(keyring.openBinary('tokens', changed, 'context'), null, `byte ${at}`)
    t.equal(keyring.openBinary('tokens', sealed.slice(0, at), 'context'), null, `${at} bytes`)
  }
})

t.test('a sealed text with any byte changed, cut or added does not open', async (t) => {
  const keyring = ring(A)
  const sealed = keyring.seal('tokens', 'text', 'context')
  const [id, body] = sealed.split('.') as [string, string]
  const bytes = Buffer.from(body, 'base64url')
  const open = (changed: Uint8Array) =>
    keyring.open('tokens', `${id}.${Buffer.from(changed).toString('base64url')}`, 'context')
  t.equal(open(bytes)?.text, 'text', 'unchanged it opens')
  for (const [i, byte] of bytes.entries()) {
    const changed = Buffer.from(bytes)
    changed[i] = byte ^ 1
    t.equal(open(changed), null, `byte ${i}`)
  }
  for (let length = 0; length < bytes.length; length++) t.equal(open(bytes.subarray(0, length)), null)
  t.equal(open(Buffer.concat([bytes, Buffer.alloc(1)])), null)
  for (const text of ['', '.', id, `${id}.`, body, `.${body}`, `AAAAAAAA.${body}`, `${id}${body}`]) {
    t.equal(keyring.open('tokens', text, 'context'), null, text)
  }
  for (const text of ['text', 'text!', 'text!!']) {
    for (const added of ['=', '==', ' ', '\n', '*', '.']) {
      const other = keyring.seal('tokens', text, 'context') + added
      t.equal(keyring.open('tokens', other, 'context'), null, `not canonical: ${JSON.stringify(added)}`)
    }
  }
})

t.test('a printed keyring shows no secret', async (t) => {
  const text = inspect(ring(A), { depth: null, showHidden: true }) + JSON.stringify(ring(A))
  t.notMatch(text, A)
})

t.test('sealed bytes are packed: tokens in base64 take three quarters', (t) => {
  const keyring = ring(A)
  const text = JSON.stringify({ a: randomBytes(600).toString('base64url') })
  const sealed = keyring.sealBinary('tokens', text, 'context')
  t.ok(sealed.length < 0.85 * text.length, `${sealed.length} of ${text.length}`)
  t.equal(keyring.openBinary('tokens', sealed, 'context')?.text, text)
  t.end()
})
