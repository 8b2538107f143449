import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import type { JournalEntry } from '../../sandbox/journal.ts'
import { readDeclaredOperations } from '../../sandbox/operations.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { parseConfig } from '../../src/config/config.ts'
import type { Teardown } from '../../test/helpers/child.ts'
import { SERVER_ENV } from '../../test/helpers/server-process.ts'
import { type Bff, signIn, startBff, startSandbox } from '../../test/helpers/system.ts'
import { makeFolder } from '../../test/helpers/watchdog.ts'
import { portOf } from '../../test/http/wire.ts'
import { createFuzzer } from './fuzzer.ts'
import { ask, CANARY, checkHeaders, FIELDS, pairs, segment } from './requests.ts'

const SERVERS = 6
const ALLOWED = ['DEMO', 'ACME']

interface Declaration {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string
  account: 'path' | 'body'
  parameters: Record<string, string | { enum: string[] }>
  query: Record<string, string | { integer: number[] } | { enum: string[] }>
  body?: object
}

const literal = fc.constantFrom('things', 'flux', 'Infrastructure', 'a.b', 'x')
const parameterType = fc.constantFrom('id', 'integer', { enum: ['one', 'two'] })
const queryType = fc.constantFrom(
  'integer',
  'text',
  'boolean',
  'number',
  { integer: [1, 9] },
  { enum: ['up'] },
)

const declaration: fc.Arbitrary<Declaration> = fc
  .record({
    method: fc.constantFrom(
      'GET' as const,
      'POST' as const,
      'PUT' as const,
      'PATCH' as const,
      'DELETE' as const,
    ),
    literals: fc.array(literal, { minLength: 1, maxLength: 3 }),
    parameters: fc.dictionary(fc.constantFrom('thingId', 'part'), parameterType, { maxKeys: 2 }),
    query: fc.dictionary(fc.constantFrom('skip', 'search', 'deep'), queryType, { maxKeys: 3 }),
    inBody: fc.boolean(),
    isAny: fc.boolean(),
    setsAccount: fc.boolean(),
  })
  .map(({ method, literals, parameters, query, inBody, isAny, setsAccount }) => {
    const hasBody = method !== 'GET' && method !== 'DELETE'
    const account = hasBody && inBody ? 'body' : 'path'
    const names = Object.keys(parameters).map((name) => `/{${name}}`)
    const schema = { type: 'object', properties: { name: { type: 'string' } }, additionalProperties: false }
    const set = { wType: 'Thing', ...(account === 'path' && setsAccount ? { wac: '{wac}' } : {}) }
    return {
      method,
      path: `${account === 'path' ? '/{wac}' : ''}/${literals.join('/')}${names.join('')}`,
      account,
      parameters,
      query,
      ...(hasBody ? { body: isAny ? { any: true, set } : { schema, set } } : {}),
    }
  })

const declarations = fc.array(declaration, { minLength: 2, maxLength: 6 })

interface Input {
  server: number
  /** Of the declarations, which the request is like. */
  like: number
  method: string
  segments: readonly string[]
  query: readonly string[]
  headers: readonly (readonly [string, string])[]
  body: string
}

const part = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...ALLOWED, '42', 'one') },
  { weight: 1, arbitrary: fc.constantFrom('EVIL', 'a.b', '..', '%2e%2e', CANARY) },
  { weight: 1, arbitrary: segment },
)
const parameter = fc.oneof(
  fc.constantFrom('skip=1', 'search=a%20b', 'deep=true', 'skip=9', 'search=up'),
  fc.constantFrom('wac=EVIL', 'WAC=EVIL', 'format=JSON', 'callback=f', 'access_token=x', `x=${CANARY}`),
)
const member = fc.constantFrom(
  ...['"wac":"DEMO"', '"wac":"EVIL"', '"WAC":"EVIL"', '"w_a-c":"ACME"', '"w\\u0061c":"EVIL"', '"name":"n"'],
  ...[
    '"wType":"Other"',
    '"__proto__":{"wac":"EVIL"}',
    '"thingId":"one"',
    `"${CANARY}":1`,
    '"n":12345678901234567890',
  ],
)
const input: fc.Arbitrary<Input> = fc.record({
  server: fc.nat(SERVERS - 1),
  like: fc.nat(5),
  method: fc.oneof(
    { weight: 6, arbitrary: fc.constant('') },
    fc.constantFrom('GET', 'PUT', 'POST', 'DELETE'),
  ),
  segments: fc.tuple(fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...ALLOWED) }, part), part, part),
  query: fc.oneof({ weight: 3, arbitrary: fc.constant([]) }, fc.array(parameter, { maxLength: 3 })),
  headers: fc.array(fc.tuple(fc.constantFrom(...FIELDS), fc.constantFrom(CANARY, 'application/json')), {
    maxLength: 3,
  }),
  body: fc
    .oneof({ weight: 1, arbitrary: fc.constantFrom(['"name":"n"'], []) }, fc.array(member, { maxLength: 4 }))
    .map((members) => `{${members.join(',')}}`),
})

interface System {
  declared: Declaration[]
  sandbox: Sandbox
  bff: Bff
  session: string
  tokens: Set<string>
}

/** The first sets of declarations that a configuration accepts, whatever the seed of the run. */
function acceptedSets(folder: string): { file: string; declared: Declaration[] }[] {
  const accepted: { file: string; declared: Declaration[] }[] = []
  for (const [at, declared] of fc.sample(declarations, { seed: 7, numRuns: 200 }).entries()) {
    const file = join(folder, `${at}.json`)
    const operations = Object.fromEntries(declared.map((each, index) => [`Operation${index}`, each]))
    writeFileSync(file, JSON.stringify({ operations }))
    if (parseConfig({ ...SERVER_ENV, OPERATIONS_FILE: file, PUBLIC_URL: 'http://localhost:1' }).ok)
      accepted.push({ file, declared })
    if (accepted.length === SERVERS) break
  }
  return accepted
}

async function startSystem(
  t: Teardown,
  { file, declared }: { file: string; declared: Declaration[] },
): Promise<System> {
  const sandbox = await startSandbox(t, { operations: readDeclaredOperations(file) })
  const env = { OPERATIONS_FILE: file, WAC_ALLOWED: ALLOWED.join(), ACCESS_LOG: 'off', LOG_LEVEL: 'silent' }
  const bff = await startBff(t, sandbox, env)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  await browser.fetch('/flux/a')
  const entries = sandbox.journal.entries({ endpoint: 'resource' })
  const tokens = new Set(entries.map(({ headers }) => headers.authorization!))
  return { declared, sandbox, bff, session: browser.cookies.get('session')!.value, tokens }
}

/** Throws unless exactly one declaration allows what the resource server got. */
function check({ method, url, body }: JournalEntry, declared: readonly Declaration[]): void {
  const [path = '', query = ''] = url.split('?')
  const matching = declared.filter(
    (each) =>
      (each.method === method || (each.method === 'GET' && method === 'HEAD')) &&
      new RegExp(
        `^${each.path.replaceAll('.', '\\.').replace(/\{\w+\}/g, '([A-Za-z0-9_.~-]{1,128})')}$`,
      ).test(path),
  )
  const [found, ...others] = matching
  if (found === undefined || others.length > 0)
    throw new Error(`${matching.length} declarations: ${method} ${url}`)
  const names = pairs(query).map(([name]) => name)
  if (new Set(names).size !== names.length) throw new Error(`a parameter twice: ${url}`)
  for (const name of names)
    if (name !== 'format' && !(name in found.query))
      throw new Error(`a parameter that is not declared: ${url}`)
  const accounts = found.account === 'path' ? [path.split('/')[1]] : []
  if (found.body === undefined) {
    if (body) throw new Error(`a body: ${body}`)
  } else {
    const members = Object.entries(JSON.parse(body ?? '') as object)
    for (const [name, value] of members)
      if (name.toLowerCase().replace(/[_-]/g, '') === 'wac') accounts.push(value)
    if (Object.keys(JSON.parse(body!)).includes('__proto__')) throw new Error(`a prototype: ${body}`)
  }
  if (accounts.length === 0 || new Set(accounts).size > 1 || !ALLOWED.includes(String(accounts[0])))
    throw new Error(`accounts ${accounts.join()}: ${method} ${url} ${body}`)
}

/** Whatever reaches the resource server is what exactly one declaration allows, with our token and an allowed account. */
export const operations = createFuzzer<Input>({
  name: 'operations',
  input,
  examples: [],
  expects: ['sent', '400', '403', '404', '405'],
  async start(t) {
    const sets = acceptedSets(makeFolder('fuzz-operations'))
    const systems = await Promise.all(sets.map((set) => startSystem(t, set)))
    return async (given) => {
      const { declared, sandbox, bff, session, tokens } = systems[given.server]!
      const like = declared[given.like % declared.length]!
      const method = given.method === '' ? like.method : given.method
      let at = 0
      const path = like.path.replace(/\{\w+\}/g, () => given.segments[at++ % 3]!)
      const target = `/data${path}${given.query.length === 0 ? '' : `?${given.query.join('&')}`}`
      sandbox.journal.clear()
      const sendsBody = method !== 'GET' && method !== 'DELETE'
      const head = [
        `${method} ${target} HTTP/1.1`,
        `Host: ${new URL(bff.publicUrl).host}`,
        'Sec-Fetch-Site: same-origin',
        `Cookie: session=${session}`,
        'Connection: close',
        ...(sendsBody ? ['Content-Type: application/json', `Content-Length: ${given.body.length}`] : []),
        ...given.headers.map(([name, text]) => `${name}: ${text}`),
      ]
      const status = await ask(portOf(bff), { method, head, body: sendsBody ? given.body : '' })
      const entries = sandbox.journal.entries()
      if (entries.length > 1) throw new Error(`${entries.length} requests went upstream`)
      const [entry] = entries
      if (entry === undefined) return String(status)
      check(entry, declared)
      checkHeaders(entry, new URL(sandbox.baseUrl).host, tokens)
      return 'sent'
    }
  },
})
