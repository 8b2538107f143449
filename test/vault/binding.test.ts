import { createHmac, generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import t from 'tap'
import { createKeyring } from '../../src/keyring.ts'
import { Secret } from '../../src/secret.ts'
import { createBinding, deviceProblem } from '../../src/vault/binding.ts'

const A = 'the first secret of at least 32 characters'
const B = 'the second secret of at least 32 characters'
const KEY = 'a'.repeat(64)
const OTHER = 'b'.repeat(64)

let now = 1_800_000_000_000
const bindingOf = (...secrets: string[]) =>
  createBinding({
    keyring: createKeyring(secrets.map((secret) => new Secret(secret))),
    publicUrl: 'https://app.example.com',
    now: () => now,
  })
const binding = bindingOf(A)

interface Device {
  privateKey: KeyObject
  jwk: { kty: string; crv: string; x: string; y: string }
}

function newDevice(): Device {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  return { privateKey, jwk: publicKey.export({ format: 'jwk' }) as Device['jwk'] }
}

const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')

/** The token of a browser that holds this key. */
function tokenOf(device: Device, header: object, payload: object): string {
  const signed = `${part({ alg: 'ES256', typ: 'dbsc+jwt', ...header })}.${part(payload)}`
  const signature = sign('sha256', Buffer.from(signed), { key: device.privateKey, dsaEncoding: 'ieee-p1363' })
  return `${signed}.${signature.toString('base64url')}`
}

const challengeIn = (header: string) => /challenge="([^"]+)"/.exec(header)?.[1] ?? ''
const quotedIn = (header: string) => /^"([^"]+)"/.exec(header)?.[1] ?? ''
const registrationOf = (device: Device, challenge: string) =>
  tokenOf(device, { jwk: device.jwk }, { jti: challenge })

t.beforeEach(() => {
  now = 1_800_000_000_000
})

t.test('a registration names the session of its challenge and the key that signed it', async (t) => {
  const device = newDevice()
  const header = binding.registration(KEY)
  t.match(header, /^\(ES256\);path="\/auth\/device";challenge="[A-Za-z0-9_.-]+"$/)
  t.notMatch(header, KEY, 'the challenge is sealed')
  const expected = { key: KEY, device: device.jwk.x + device.jwk.y }
  const token = registrationOf(device, challengeIn(header))
  t.strictSame(binding.readRegistration(token), expected)
  t.strictSame(binding.readRegistration(`"${token}"`), expected, 'quoted, as the draft has it')
  t.strictSame(bindingOf(B, A).readRegistration(token), expected, 'after a change of secrets')
  now += 59_999
  t.strictSame(binding.readRegistration(token), expected)
  now += 1
  t.equal(binding.readRegistration(token), null, 'a minute later')
})

t.test('a faulty registration is none', async (t) => {
  const device = newDevice()
  const challenge = challengeIn(binding.registration(KEY))
  const [header = '', payload = '', signature = ''] = registrationOf(device, challenge).split('.')
  const signedBy = (signer: Device, jwk: object, more: object = {}) =>
    tokenOf(signer, { jwk, ...more }, { jti: challenge })
  const faulty: Record<string, string | undefined> = {
    none: undefined,
    empty: '',
    'two parts': `${header}.${payload}`,
    'four parts': `${header}.${payload}.${signature}.${signature}`,
    'no JSON': `e30.${payload}x.${signature}`,
    'another signature': `${header}.${payload}.${part(1)}`,
    'signed by another key': signedBy(newDevice(), device.jwk),
    'no key': signedBy(device, {}),
    'another curve': signedBy(device, { ...device.jwk, crv: 'P-384' }),
    'no point of the curve': signedBy(device, { ...device.jwk, x: 'A'.repeat(43) }),
    'a short coordinate': signedBy(device, { ...device.jwk, x: device.jwk.x.slice(1) }),
    'another algorithm': signedBy(device, device.jwk, { alg: 'none' }),
    'another type': signedBy(device, device.jwk, { typ: 'jwt' }),
    'a challenge of a refresh': registrationOf(device, quotedIn(binding.challenge(KEY))),
    'a made-up challenge': registrationOf(device, 'made.up'),
    'no challenge': tokenOf(device, { jwk: device.jwk }, {}),
    'a challenge that is no string': tokenOf(device, { jwk: device.jwk }, { jti: 7 }),
    'too long': tokenOf(device, { jwk: device.jwk, x: 'x'.repeat(4_096) }, { jti: challenge }),
    'of another secret': registrationOf(device, challengeIn(bindingOf(B).registration(KEY))),
  }
  for (const [what, response] of Object.entries(faulty))
    t.equal(binding.readRegistration(response), null, what)
  t.not(binding.readRegistration(`${header}.${payload}.${signature}`), null, 'the one that was changed')
})

t.test(
  'a proof answers a challenge of its session with the key of its session, for 30 seconds',
  async (t) => {
    const device = newDevice()
    const key = device.jwk.x + device.jwk.y
    const header = binding.challenge(KEY)
    t.match(header, /^"\d+\.[A-Za-z0-9_-]{43}";id="app\.example\.com"$/)
    const proof = tokenOf(device, {}, { jti: quotedIn(header) })
    t.ok(binding.isProof(KEY, key, proof))
    t.ok(binding.isProof(KEY, key, proof), 'a browser may send the same proof twice')
    t.ok(bindingOf(B, A).isProof(KEY, key, proof), 'after a change of secrets')
    t.notOk(binding.isProof(OTHER, key, proof), 'of another session')
    t.notOk(binding.isProof(KEY, key, tokenOf(newDevice(), {}, { jti: quotedIn(header) })), 'by another key')
    t.notOk(binding.isProof(KEY, key, tokenOf(device, {}, { jti: binding.cookie(KEY).value })), 'a cookie')
    t.notOk(binding.isProof(KEY, key, undefined))
    now += 30_000
    t.notOk(binding.isProof(KEY, key, proof), 'late')
  },
)

t.test('a device cookie proves its own session until it expires', async (t) => {
  const { value: cookie, maxAgeSeconds } = binding.cookie(KEY)
  t.equal(maxAgeSeconds, 600)
  t.ok(cookie.length < 64, 'a short cookie')
  t.equal(binding.provenUntil(KEY, cookie), now + 605_000, 'a moment longer than its browser keeps it')
  t.equal(
    bindingOf(B, A).provenUntil(KEY, cookie),
    now + 605_000,
    'a moment longer than its browser keeps it',
  )
  const [until = '', signature = ''] = cookie.split('.')
  for (const other of [
    null,
    '',
    'x',
    quotedIn(binding.challenge(KEY)),
    `${Number(until) + 600}.${signature}`,
    `0${cookie}`,
    `${cookie}=`,
  ])
    t.equal(binding.provenUntil(KEY, other), null, String(other))
  t.equal(binding.provenUntil(OTHER, cookie), null, 'of another session')
  const plain = createHmac('sha256', A).update(`cookie.${KEY}.${until}`).digest('base64url')
  t.equal(binding.provenUntil(KEY, `${until}.${plain}`), null, 'the key is a derived one')
  now += 605_000
  t.equal(binding.provenUntil(KEY, cookie), null, 'expired')
})

t.test(
  'the instructions bind the data and the session information of one host, and nothing else',
  async (t) => {
    const { session_identifier, refresh_url, scope, credentials } = binding.instructions
    t.equal(session_identifier, 'app.example.com')
    t.equal(refresh_url, '/auth/device/refresh')
    t.equal(scope.include_site, false)
    t.strictSame(
      scope.scope_specification.map(({ type, path }) => `${type} ${path}`),
      ['exclude /', 'include /flux', 'include /site', 'include /data', 'include /auth/session'],
    )
    t.strictSame(credentials, [
      { type: 'cookie', name: '__Host-device', attributes: 'Path=/; Secure; HttpOnly; SameSite=Strict' },
    ])
  },
)

t.test(
  'an outage asks the browser to come again, and a missing proof asks the user to sign in',
  async (t) => {
    t.match(deviceProblem(true), { status: 503, code: 'store_unavailable', headers: { 'retry-after': '5' } })
    t.match(deviceProblem(false), { status: 401, code: 'login_required', members: { reason: 'device' } })
  },
)

t.test('the scope names the host without its port, which is part of the identifier', async (t) => {
  const { instructions } = createBinding({
    keyring: createKeyring([new Secret(A)]),
    publicUrl: 'https://app.example.com:8443',
    now: () => now,
  })
  t.equal(instructions.session_identifier, 'app.example.com:8443')
  for (const { domain } of instructions.scope.scope_specification) t.equal(domain, 'app.example.com')
})
