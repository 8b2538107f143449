import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import type { JournalEntry } from '../../sandbox/journal.ts'
import { readDeclaredOperations } from '../../sandbox/operations.ts'
import { parseConfig } from '../../src/config/config.ts'
import { SERVER_ENV } from '../../test/helpers/server-process.ts'
import { makeFolder } from '../../test/helpers/watchdog.ts'
import { choose, createFuzzer, mix, words } from './fuzzer.ts'
import { CANARY, FIELDS, pairs, segment, startSignedIn } from './requests.ts'

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
const numbers = { integer: [1, 9] }
const queryType = fc.constantFrom('integer', 'text', 'boolean', 'number', numbers, { enum: ['up'] })

const declaration: fc.Arbitrary<Declaration> = fc
  .record({
    method: choose([1, 'GET', 'POST', 'PUT', 'PATCH', 'DELETE']),
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

const part = mix(
  [4, fc.constantFrom(...ALLOWED, '42', 'one')],
  [1, fc.constantFrom('EVIL', 'a.b', '..', '%2e%2e', CANARY)],
  [1, segment],
)
const parameter = fc.constantFrom(
  ...words('skip=1 search=a%20b deep=true skip=9 search=up'),
  ...words(`wac=EVIL WAC=EVIL format=JSON callback=f access_token=x x=${CANARY}`),
)
const member = fc.constantFrom(
  ...words('"wac":"DEMO" "wac":"EVIL" "WAC":"EVIL" "w_a-c":"ACME" "w\\u0061c":"EVIL" "name":"n"'),
  ...words(
    `"wType":"Other" "__proto__":{"wac":"EVIL"} "thingId":"one" "${CANARY}":1 "n":12345678901234567890`,
  ),
)
const input = fc.record({
  server: fc.nat(SERVERS - 1),
  // Of the declarations, which the request is like.
  like: fc.nat(5),
  method: choose([6, ''], [1, 'GET', 'PUT', 'POST', 'DELETE']),
  segments: fc.tuple(mix([4, fc.constantFrom(...ALLOWED)], [1, part]), part, part),
  query: mix<string[]>([3, fc.constant([])], [1, fc.array(parameter, { maxLength: 3 })]),
  headers: fc.array(fc.tuple(fc.constantFrom(...FIELDS), fc.constantFrom(CANARY, 'application/json')), {
    maxLength: 3,
  }),
  body: fc
    .oneof(fc.constantFrom(['"name":"n"'], []), fc.array(member, { maxLength: 4 }))
    .map((members) => `{${members.join(',')}}`),
})

/** The first sets of declarations that a configuration accepts, whatever the seed of the run. */
function acceptedSets(folder: string): { file: string; declared: Declaration[] }[] {
  const accepted: { file: string; declared: Declaration[] }[] = []
  const sets = fc.array(declaration, { minLength: 2, maxLength: 6 })
  for (const [at, declared] of fc.sample(sets, { seed: 7, numRuns: 200 }).entries()) {
    const file = join(folder, `${at}.json`)
    const operations = Object.fromEntries(declared.map((each, index) => [`Operation${index}`, each]))
    writeFileSync(file, JSON.stringify({ operations }))
    if (parseConfig({ ...SERVER_ENV, OPERATIONS_FILE: file, PUBLIC_URL: 'http://localhost:1' }).ok)
      accepted.push({ file, declared })
    if (accepted.length === SERVERS) break
  }
  return accepted
}

/** Throws unless exactly one declaration allows what the resource server got. */
function check({ method, url, body }: JournalEntry, declared: readonly Declaration[]): void {
  const [path = '', query = ''] = url.split('?')
  const patternOf = (declaration: Declaration): RegExp =>
    RegExp(`^${declaration.path.replaceAll('.', '\\.').replace(/\{\w+\}/g, '[A-Za-z0-9_.~-]{1,128}')}$`)
  const asked = method === 'HEAD' ? 'GET' : method
  const matching = declared.filter((each) => each.method === asked && patternOf(each).test(path))
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
export const operations = createFuzzer({
  name: 'operations',
  input,
  // For the outcomes that short runs rarely reach.
  examples: Array.from({ length: SERVERS }, (_, server) => ({
    ...{ server, like: 0, method: '' as const, query: [], headers: [], body: '{"wac":"EVIL"}' },
    segments: ['EVIL', 'one', 'one'] as [string, string, string],
  })),
  expects: ['sent', '400', '403', '404', '405'],
  async start(t) {
    const servers = await Promise.all(
      acceptedSets(makeFolder('fuzz-operations')).map(async ({ file, declared }) => {
        const env = { OPERATIONS_FILE: file, WAC_ALLOWED: ALLOWED.join() }
        return { declared, ...(await startSignedIn(t, env, readDeclaredOperations(file))) }
      }),
    )
    return async ({ server, like, segments, query, ...given }) => {
      const { declared, send } = servers[server]!
      const likened = declared[like % declared.length]!
      const method = given.method === '' ? likened.method : given.method
      let at = 0
      const path = likened.path.replace(/\{\w+\}/g, () => segments[at++ % 3]!)
      const target = `/data${path}${query.length === 0 ? '' : `?${query.join('&')}`}`
      const sent = await send({ ...given, method, target })
      if (typeof sent === 'number') return String(sent)
      check(sent, declared)
      return 'sent'
    }
  },
})
