import { writeFileSync } from 'node:fs'
import { BUILT_IN } from '../../src/config/built-in.ts'
import type { Config } from '../../src/config/config.ts'
import { FORMATS, type Format, sameName } from '../../src/config/operation.ts'
import { MAX_OPERATIONS } from '../../src/config/operations-file.ts'
import type { Environment } from '../../src/config/secrets.ts'
import type { Secret } from '../../src/secret.ts'
import { asciiJson } from '../in-ascii.ts'
import { TYPE_OF } from '../measure/measure.ts'
import { type Answer, type Platform, whyUnusable } from '../measure/platform.ts'
import { declarationsOf } from '../operation-faults.ts'
import type { Report } from '../report.ts'
import { freeName, type Pattern, patternsOf } from './pattern.ts'
import { queryTextOf, readSample, type Sample } from './sample.ts'
import { newShape, schemaOf, see } from './shape.ts'

/** What the resource server answers to the samples of one operation. */
interface Answers {
  /** null: no answer could be used. */
  formats: Format[] | 'any' | null
  /** Whether the query may name the format. */
  inQuery: boolean
  /** Of JSON. */
  shape: ReturnType<typeof newShape>
  /** Responses in the shape. */
  count: number
  isList: boolean
}

/** The operations to draft, or why there are none: addresses that cannot be declared, each by name. */
export function patternsFor(
  addresses: readonly string[],
  { baseUrl, wac }: Pick<Config, 'baseUrl' | 'wac'>,
  env: Environment,
): { patterns: readonly Pattern[]; faults: readonly string[] } {
  if (addresses.length > MAX_OPERATIONS)
    return { patterns: [], faults: [`--draft: at most ${MAX_OPERATIONS} addresses, not ${addresses.length}`] }
  const read = addresses.map((address) => readSample(address, baseUrl))
  const faults = read.filter((sample) => typeof sample === 'string')
  const patterns = patternsOf(
    read.filter((sample) => typeof sample !== 'string'),
    wac,
  )
  // Before anything is asked: an endpoint of the authorization server gets no token.
  return { patterns, faults: [...faults, ...faultsOf(patterns, env)] }
}

/** What the server would find wrong with a file of these operations, each by the path of its first sample. */
function faultsOf(patterns: readonly Pattern[], env: Environment): string[] {
  const named = new Map(patterns.map((pattern, at) => [`Draft${at}`, pattern]))
  const pathOf = (name: string): string => named.get(name)?.samples[0]?.path ?? name
  const text = textOf(new Map([...named].map(([name, pattern]) => [name, declarationOf(pattern, null)])))
  return declarationsOf(text, env).faults.map((fault) => {
    const [pointer = '', name = ''] = /^\/operations\/(\w+)/.exec(fault) ?? []
    const words = fault.slice(pointer.length).replace(/ (Draft\d+) /, (_, other) => ` ${pathOf(other)} `)
    const advice = words.startsWith('/path matches')
      ? ': leave one out, or name the accounts in WAC_ALLOWED'
      : ''
    return `--draft: ${pathOf(name)}: ${words}${advice}`
  })
}

/** Reads the samples, by GET alone, and prints a draft of `OPERATIONS_FILE`; `out`: a new file that gets it too. */
export async function measureDraft(
  { platform, report }: { platform: Platform; report: Report },
  token: Secret,
  { patterns, out, env }: { patterns: readonly Pattern[]; out: string | null; env: Environment },
): Promise<void> {
  const operations = new Map<string, object>()
  const names = new Set(BUILT_IN.map(({ name }) => sameName(name)))
  let isWhole = false
  try {
    for (const pattern of patterns) {
      const answers = await readPattern({ platform, report, token }, pattern)
      if (answers.formats === null) continue
      const name = freeName(`${answers.isList ? 'List' : 'Get'}${pattern.noun}`, names)
      operations.set(name, declarationOf(pattern, answers))
      report.add('draft', { value: name, message: `${name}: ${wordsOf(pattern, answers)}` })
    }
    isWhole = true
  } finally {
    // A stop leaves what was read until then, and writes no file.
    if (operations.size > 0) print(report, textOf(operations), { out: isWhole ? out : null, env })
    else if (isWhole)
      report.add('draft', {
        verdict: 'warning',
        message: 'there is none: no address gave a response to declare',
      })
  }
}

function print(report: Report, text: string, { out, env }: { out: string | null; env: Environment }): void {
  const printed = report.document(
    'draft',
    text,
    'A draft of OPERATIONS_FILE. Check what is guessed, and leave out what no page needs',
  )
  // As it is printed: two secrets in it look the same.
  const { faults } = declarationsOf(printed, env)
  for (const each of faults)
    report.add('draft', { verdict: 'fault', message: `the server refuses it: ${each}` })
  if (out === null || faults.length > 0) return
  try {
    writeFileSync(out, `${printed}\n`, { flag: 'wx' })
    report.add('draft file', { value: out, message: `${out} is written`, setting: `OPERATIONS_FILE=${out}` })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    report.add('draft file', { verdict: 'fault', message: `${out} is not written (${code})` })
  }
}

interface Reading {
  platform: Platform
  report: Report
  token: Secret
}

async function readPattern(reading: Reading, pattern: Pattern): Promise<Answers> {
  const answers: Answers = { formats: null, inQuery: true, shape: newShape(), count: 0, isList: false }
  for (const sample of pattern.samples) {
    const first = await readFirst(reading, sample)
    if (first === null) continue
    const { answer, inQuery } = first
    if (answers.formats === null) {
      answers.inQuery = inQuery
      answers.formats = await formatsOf(reading, sample, first)
    }
    const value = TYPE_OF.JSON.test(answer.type) ? parsed(answer.body) : undefined
    if (value === undefined) continue
    see(answers.shape, value)
    answers.count += 1
    answers.isList ||= Array.isArray(value)
  }
  return answers
}

/** The first response that a page would get. null: there is none, and the report says why. */
async function readFirst(
  { platform, report, token }: Reading,
  sample: Sample,
): Promise<{ answer: Answer; inQuery: boolean } | null> {
  const call = (inQuery: boolean) =>
    platform.call(token, {
      method: 'GET',
      path: sample.path,
      query: queryTextOf(sample),
      formatInQuery: inQuery,
    })
  let inQuery = true
  let answer = await call(inQuery)
  // Some servers know no `format` in the query: Django REST framework says 404.
  if (typeof answer !== 'string' && [400, 404, 406].includes(answer.status)) {
    const other = await call(false)
    if (typeof other !== 'string' && isSuccess(other)) {
      answer = other
      inQuery = false
    }
  }
  const failure = failureOf(answer, report)
  if (failure === null) return { answer: answer as Answer, inQuery }
  report.add('draft', {
    verdict: typeof answer === 'string' ? 'fault' : 'warning',
    value: sample.path,
    message: `${sample.path} is left out: ${failure}`,
  })
  return null
}

function failureOf(answer: Answer | string, report: Report): string | null {
  if (typeof answer === 'string') return `the resource server gives no response (${answer})`
  const { status, body } = answer
  if (status >= 400) return `status ${status}: ${report.quote(body) || 'no body'}`
  const reason = whyUnusable(answer)
  return reason === null ? null : `pages get 502 for it (${reason})`
}

function isSuccess({ status }: Answer): boolean {
  return status >= 200 && status < 300
}

/** The formats in which the resource server answers this sample. */
async function formatsOf(
  { platform, report, token }: Reading,
  sample: Sample,
  { answer, inQuery }: { answer: Answer; inQuery: boolean },
): Promise<Answers['formats']> {
  if (answer.bytes === 0) return ['JSON']
  const place = { method: 'GET', path: sample.path, query: queryTextOf(sample) } as const
  const found: Format[] = []
  if (FORMATS.some((format) => TYPE_OF[format].test(answer.type)))
    for (const format of FORMATS) {
      const each =
        format === 'JSON' ? answer : await platform.call(token, { ...place, format, formatInQuery: inQuery })
      if (typeof each !== 'string' && isSuccess(each) && TYPE_OF[format].test(each.type)) found.push(format)
    }
  if (found.length > 0) return found
  const file = await platform.call(token, { ...place, format: null })
  const failure = failureOf(file, report)
  if (failure === null) return 'any'
  report.add('draft', {
    verdict: 'warning',
    value: sample.path,
    message: `${sample.path} is left out: asked for as a file, ${failure}`,
  })
  return null
}

/** undefined: it is no JSON, or not the whole of it. */
function parsed(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch {
    return undefined
  }
}

/** `answers`: null before anything is read. What is usual is not written. */
function declarationOf({ path, account, parameters, query }: Pattern, answers: Answers | null): object {
  const declared: Record<string, unknown> = { method: 'GET', path }
  if (account !== 'path') declared.account = account
  if (Object.keys(parameters).length > 0) declared.parameters = parameters
  if (Object.keys(query).length > 0) declared.query = query
  if (answers === null) return declared
  const { formats, inQuery, count, shape } = answers
  if (String(formats) !== 'JSON') declared.formats = formats
  if (!inQuery && formats !== 'any') declared.format = 'accept'
  if (count > 0) declared.response = schemaOf(shape)
  return declared
}

function wordsOf({ path, guesses }: Pattern, { formats, inQuery, count, shape }: Answers): string {
  const answered =
    formats === 'any'
      ? 'answers with files or pictures'
      : `answers in ${formats?.join(', ')}${inQuery ? '' : ', named in Accept alone'}`
  const schema =
    count === 0
      ? 'no response schema, since no whole JSON was seen'
      : `a response schema from ${count} ${count === 1 ? 'response' : 'responses'}${shape.members.size + (shape.items?.members.size ?? 0) > 0 ? ', in which a member is required if it was always there' : ''}`
  return `GET ${path} ${answered}. Guessed: ${[...guesses, schema].join('; ')}`
}

function textOf(operations: ReadonlyMap<string, object>): string {
  return asciiJson({ operations: Object.fromEntries(operations) }, 2)
}
