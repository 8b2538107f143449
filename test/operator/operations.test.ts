import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import ts from 'typescript'
import { ANGULAR_SWITCHES } from '../helpers/angular.ts'
import { run } from './run.ts'

const path = '/{wac}/zones/{zoneId}'
const parameters = { zoneId: 'integer' }
const node = {
  type: 'object',
  required: ['id'],
  properties: { id: { type: 'integer' }, next: { $ref: '#/$defs/node' }, note: { type: ['string', 'null'] } },
}
const OPERATIONS = {
  GetZone: { method: 'GET', path, parameters, response: { $ref: '#/$defs/node', $defs: { node } } },
  ListZones: {
    ...{ method: 'GET', path: '/{wac}/zones', formats: ['JSON', 'CSV'] },
    query: { id: { list: 'integer', max: 3 }, order: { enum: ['up', 'down'] }, deep: 'boolean' },
    response: { type: 'array', items: node.properties.note },
  },
  Delete: {
    ...{ method: 'PUT', path, parameters },
    body: {
      set: { wType: 'Zone' },
      schema: {
        type: 'object',
        required: ['wType', 'name'],
        properties: { name: { type: 'string' }, wType: {}, floor: { type: 'integer', nullable: true } },
      },
    },
  },
  GetSite: {
    ...{ method: 'GET', path: '/{wac}/sites/{siteId}', parameters: { siteId: 'integer' } },
    response: {
      type: 'object',
      required: ['name', 'description', 'code'],
      properties: {
        ...{ name: { type: 'string' }, description: { type: ['string', 'null'] }, code: { type: 'string' } },
        parentInfrastructureID: { type: ['integer', 'null'] },
      },
    },
  },
  PutPlan: {
    method: 'PUT',
    path: '/{wac}/plans/{planId}',
    parameters: { planId: 'id' },
    formats: 'any',
    body: { types: ['image/png'], limit: 9 },
  },
  ListReports: { method: 'GET', path: '/{wac}/reports', formats: ['XML', 'CSV'] },
  PutPart: {
    ...{ method: 'PUT', path: '/{wac}/parts/{query}/{format}/{body}', formats: ['JSON', 'CSV'] },
    parameters: { query: 'id', format: 'id', body: 'id' },
    ...{ query: { deep: 'boolean' }, body: 'any' },
  },
  SendMessage: {
    ...{ method: 'POST', path: '/json/reply/SendMessage', account: 'body' },
    body: {
      set: { wType: 'SendMessage' },
      schema: {
        ...{ type: 'object', additionalProperties: false, required: ['text'] },
        properties: { text: { type: 'string' } },
      },
    },
  },
  SendAny: {
    ...{ method: 'POST', path: '/json/reply/SendAny', account: 'body' },
    body: { schema: { anyOf: [{ $ref: '#/$defs/node' }], $defs: { node } } },
  },
}

const USE = `
import { changesOf, updateSite } from './bff-client'
import { operations } from './operations'
export const rename = async (name: string) =>
  await updateSite(42, { ...changesOf(await operations.getSite({ wac: 'DEMO', siteId: 42 })), name })
export async function use(): Promise<string> {
  const { id, next } = await operations.getZone({ wac: 'DEMO', zoneId: 7 })
  const list = await operations.listZones({ wac: 'DEMO', query: { id: [1, 2], order: 'up' } })
  const csv: string = await operations.listZones({ wac: 'DEMO', format: 'CSV' })
  await operations.delete({ wac: 'DEMO', zoneId: 7n, body: { name: 'Hall', floor: null } })
  const file: Response = await operations.putPlan({ wac: 'DEMO', planId: 'a', body: new Blob(['x'], { type: 'image/png' }) })
  const xml: string = await operations.listReports({ wac: 'DEMO' })
  const report: string = await operations.listReports({ wac: 'DEMO', format: 'CSV' })
  const part = { wac: 'DEMO', $query: 'q', $format: 'f', $body: 'b', query: { deep: true }, body: { a: 1 } }
  await operations.putPart({ ...part, format: 'JSON' })
  await operations.sendMessage({ body: { text: 'Hi', wac: 'ACME' } })
  await operations.sendMessage({ body: { text: 'Hi' } })
  await operations.sendAny({ body: { id: 1, wac: 'ACME' } })
  return [id, next?.id, list[0]?.length, csv, file.status, xml, report].join()
}
// @ts-expect-error: an account is a text
export const odd = () => operations.sendMessage({ body: { text: 'Hi', wac: 7 } })
// @ts-expect-error: the body lacks a member
export const faulty = () => operations.delete({ wac: 'DEMO', zoneId: 7, body: {} })
// @ts-expect-error: no such word
export const wrong = () => operations.listZones({ wac: 'DEMO', query: { order: 'left' } })
`

t.test('types gives a page typed calls, which compile and run with bff-client', async (t) => {
  const { GetSite: read, PutPlan: file } = OPERATIONS
  const folder = t.testdir()
  const typesOf = async (operations: object): Promise<string> => {
    const OPERATIONS_FILE = join(folder, 'operations.json')
    writeFileSync(OPERATIONS_FILE, JSON.stringify({ operations }))
    const { code, lines } = await run(t, 'operations.js', { OPERATIONS_FILE }, 'types')
    t.equal(code, 0)
    return lines.join('\n')
  }
  const files = {
    'operations.ts': await typesOf(OPERATIONS),
    // Nothing in them may be unused.
    'files-alone.ts': await typesOf({ PutPlan: file }),
    'reads-alone.ts': await typesOf({ GetSite: read }),
    'none.ts': await typesOf({}),
    'use.ts': USE,
    'bff-client.ts': ts.sys.readFile('client/bff-client.ts')!,
  }
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
  const options: ts.CompilerOptions = {
    ...{ strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, skipLibCheck: true },
    ...{ ...ANGULAR_SWITCHES, noUnusedLocals: true, noUnusedParameters: true },
    ...{ target: ts.ScriptTarget.ES2022, lib: ['lib.es2023.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'] },
    ...{ module: ts.ModuleKind.CommonJS, moduleResolution: ts.ModuleResolutionKind.Bundler, types: [] },
    ...{ outDir: join(folder, 'out'), ignoreDeprecations: '6.0' },
  }
  mkdirSync(join(folder, 'out'))
  writeFileSync(join(folder, 'out/package.json'), '{"type":"commonjs"}')
  const roots = Object.keys(files).map((name) => join(folder, name))
  const program = ts.createProgram(roots, options)
  program.emit()
  const faults = ts
    .getPreEmitDiagnostics(program)
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, ' '))
  t.strictSame(faults, [])

  const sent: string[] = []
  t.intercept(globalThis, 'fetch', {
    configurable: true,
    value: async (target: string, { method, body }: RequestInit) => {
      sent.push(
        `${method} ${target}${typeof body === 'string' ? ` ${body}` : body === undefined ? '' : ' file'}`,
      )
      if (target.includes('format=CSV')) return new Response('a,b')
      if (target.includes('format=XML')) return new Response('<a/>')
      if (target.includes('/zones?')) return new Response('["ab"]')
      return new Response('{"id":7,"next":{"id":8}}')
    },
  })
  const { use } = (await import(join(folder, 'out/use.js'))) as { use(): Promise<string> }
  t.equal(await use(), '7,8,2,a,b,200,<a/>,a,b')
  t.strictSame(sent, [
    'GET /data/DEMO/zones/7',
    'GET /data/DEMO/zones?id=1&id=2&order=up',
    'GET /data/DEMO/zones?format=CSV',
    'PUT /data/DEMO/zones/7 {"name":"Hall","floor":null}',
    'PUT /data/DEMO/plans/a file',
    'GET /data/DEMO/reports?format=XML',
    'GET /data/DEMO/reports?format=CSV',
    'PUT /data/DEMO/parts/q/f/b?deep=true&format=JSON {"a":1}',
    'POST /data/json/reply/SendMessage {"text":"Hi","wac":"ACME"}',
    'POST /data/json/reply/SendMessage {"text":"Hi"}',
    'POST /data/json/reply/SendAny {"id":1,"wac":"ACME"}',
  ])
})

t.test('check warns of a pattern that programs in Go cannot read', async (t) => {
  const coded = (pattern: string) => ({
    ...{ type: 'object', properties: { code: { type: 'string', maxLength: 9, pattern }, pattern: {} } },
    examples: [{ pattern: '(?!' }],
  })
  const write = { method: 'PUT', path, parameters }
  const declared = {
    Ahead: { ...write, body: { schema: coded('^(?!x)[a-z]{1,9}$') } },
    Coded: { ...write, path: '/{wac}/codes/{zoneId}', body: { schema: coded('^\\u0041[a-z]{1,8}$') } },
    Plain: { ...write, path: '/{wac}/plain/{zoneId}', body: { schema: coded('^[a-z]{1,9}$') } },
    Read: { method: 'GET', path, parameters, response: { items: { pattern: 'a(?=b)' } } },
    Named: {
      ...{ method: 'GET', path: '/{wac}/named/{zoneId}', parameters },
      response: {
        properties: { enum: { pattern: '(?=c)' }, const: { items: { pattern: '(?=d)' } } },
        patternProperties: { '(?=e)': { const: { pattern: '(?!' } } },
      },
    },
  }
  const folder = t.testdir({ 'operations.json': JSON.stringify({ operations: declared }) })
  const { code, lines, stderr } = await run(t, 'operations.js', {}, 'check', `${folder}/operations.json`)
  t.equal(code, 0)
  t.match(lines, [/5 operations, no fault$/])
  t.match(stderr.trim().split('\n'), [
    /Ahead\/body\/schema\/properties\/code\/pattern: warning: .*Go .*\(\?!/,
    /Coded\/.*\\u/,
    /Read\/response\/items\/pattern: .*\(\?=/,
    /Named\/response\/properties\/enum\/pattern: /,
    /Named\/response\/properties\/const\/items\/pattern: /,
    /Named\/response\/patternProperties\/\(\?=e\): /,
  ])
  t.equal(stderr.trim().split('\n').length, 6)
})

t.test('check warns of a body of which no example can be made', async (t) => {
  const pattern = { type: 'string', maxLength: 9, pattern: '^[a-z]{1,9}$' }
  const write = (name: string, code: object, more = {}) => ({
    ...{ method: 'PUT', path: `/{wac}/${name}` },
    body: { schema: { type: 'object', properties: { code }, ...more }, set: { wType: 'Zone' } },
  })
  const declared = {
    Coded: write('coded', pattern),
    Whole: write('whole', pattern, { examples: [{ code: 'a' }] }),
    Part: write('part', { ...pattern, examples: ['a'] }),
    Filled: {
      ...write('filled', {}),
      body: { schema: { type: 'object', properties: { code: pattern } }, set: { code: 'a' } },
    },
    Free: { method: 'PUT', path: '/{wac}/free', body: 'any' },
  }
  const folder = t.testdir({ 'operations.json': JSON.stringify({ operations: declared }) })
  const { code, stderr } = await run(t, 'operations.js', {}, 'check', `${folder}/operations.json`)
  t.equal(code, 0)
  t.match(stderr, /^\S+ \/operations\/Coded\/body\/schema: warning: no example .* give it "examples"\n$/)
})

t.test('check names every fault at once, those with other variables included', async (t) => {
  const read = { method: 'GET', path: '/WUM', account: 'none' }
  const faulty = { Read: { ...read, formats: ['PNG'] }, Write: { ...read, method: 'TRACE' }, Other: read }
  const folder = t.testdir({
    'sound.json': JSON.stringify({ operations: OPERATIONS }),
    'endpoint.json': JSON.stringify({ operations: { Token: { ...read, path: '/oauth/token' } } }),
    'none.json': JSON.stringify({ operations: { Read: read } }),
    'faulty.json': JSON.stringify({ operations: faulty }),
  })
  const check = (...args: string[]) => run(t, 'operations.js', { WAC_ALLOWED: 'DEMO' }, ...args)
  t.match(await check('check', `${folder}/sound.json`), { code: 0, lines: [/9 operations, no fault$/] })
  const endpoint = { BASE_URL: 'https://a.test', AUTH_URL: 'https://a.test', WAC: 'not a code' }
  const held = await run(t, 'operations.js', endpoint, 'check', `${folder}/endpoint.json`)
  t.match(
    held,
    { code: 2, stderr: /Token\/path is an endpoint of the authorization server\n$/ },
    'WAC is not its own',
  )
  const none = await run(t, 'operations.js', { WAC_ALLOWED: 'DE MO' }, 'check', `${folder}/none.json`)
  t.match(none, { code: 2, stderr: /Read\/account must not be "none" while WAC_ALLOWED is set\n$/ })
  const { code, lines, stderr } = await check('check', `${folder}/faulty.json`)
  t.strictSame([code, lines], [2, []])
  t.match(stderr, /Read\/formats must be a list of JSON, XML, CSV, JSV/)
  t.match(stderr, /Write\/method must be one of/)
  t.match(stderr, /Other\/account must not be "none" while WAC_ALLOWED is set/)
  t.equal((await check('types', `${folder}/faulty.json`)).code, 2)
  for (const [args, says] of [
    [['check'], /needs a file/],
    [['check', `${folder}/missing.json`], /cannot be read \(ENOENT\)/],
    [['draw', 'x'], /must be check or types/],
    [['check', 'a', 'b'], /takes one file/],
    [['--no'], /Unknown option/],
  ] as const) {
    const wrong = await check(...args)
    t.match(wrong, { code: 2, stderr: says }, args.join(' '))
  }
  t.match(await check('--help'), { code: 0, lines: [/^Checks a file/] })
  t.match(await check('--version'), { code: 0, lines: [/^\d+\.\d+\.\d+/] })
})
