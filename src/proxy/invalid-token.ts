import zlib from 'node:zlib'
import type { TokenShape } from '../config/upstream.ts'

/** The search for an error code reads at most this many bytes of a body, and of the decoded body. */
export const INSPECTED_BYTES = 16 * 1024

const INVALID_TOKEN = /^invalid_?token$/i
const INSUFFICIENT_SCOPE = /^insufficient_?scope$/i
const CODE_MEMBERS = new Set(['error', 'errorcode', 'error_code', 'code'])
const CODE_OBJECTS = new Set(['error', 'responsestatus'])

/** Only the beginning of a long challenge is searched: a whole one could take long. */
const MAX_CHALLENGE = 2_048
// A quoted string is taken whole, so that text inside a description is never read as a parameter.
const AUTH_PARAM = /([\w!#$%&'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))/g

/** Whether a `WWW-Authenticate` value has `error="invalid_token"` (RFC 6750 section 3). */
export function challengeNamesInvalidToken(challenge: string | string[] | undefined): boolean {
  return challengeNames(INVALID_TOKEN, challenge)
}

/** Whether a `WWW-Authenticate` value has `error="insufficient_scope"` (RFC 6750 section 3.1). */
export function challengeNamesInsufficientScope(challenge: string | string[] | undefined): boolean {
  return challengeNames(INSUFFICIENT_SCOPE, challenge)
}

function challengeNames(code: RegExp, challenge: string | string[] | undefined): boolean {
  if (challenge === undefined) return false
  for (const [, name, quoted, plain] of String(challenge).slice(0, MAX_CHALLENGE).matchAll(AUTH_PARAM)) {
    if (name?.toLowerCase() === 'error' && code.test(quoted ?? plain ?? '')) return true
  }
  return false
}

/**
 * Whether the beginning of an error body names `invalid_token` (or `InvalidToken`) as its error code. The
 * service does not document its error body, so the usual places count: a member `error`, `errorCode`,
 * `error_code` or `code` of the whole, or of its `error` or `responseStatus`, in JSON (also wrapped as JSONP)
 * and JSV; the same names as elements in XML; `error=` in a form. Lists of field errors and prose do not
 * count, but `shapes` do, those of this status from `UPSTREAM_INVALID_TOKEN`; `isWhole`: the body ends with these
 * chunks. Never rejects: an unknown coding names nothing.
 */
export async function bodyNamesInvalidToken(
  chunks: Buffer[],
  contentEncoding: string | string[] | undefined,
  { shapes = [], isWhole = false }: { shapes?: readonly TokenShape[]; isWhole?: boolean } = {},
): Promise<boolean> {
  if (isWhole && shapes.some(({ path }) => path === null) && chunks.every(({ length }) => length === 0))
    return true
  const text = await decodedStart(chunks, contentEncoding?.toString())
  return textNames(INVALID_TOKEN, text) || (shapes.length > 0 && hasShape(valuesIn(text), shapes))
}

/** Whether the beginning of an error body names `insufficient_scope` as its error code, in the usual places. Never rejects. */
export async function bodyNamesInsufficientScope(
  chunks: Buffer[],
  contentEncoding: string | string[] | undefined,
): Promise<boolean> {
  return textNames(INSUFFICIENT_SCOPE, await decodedStart(chunks, contentEncoding?.toString()))
}

/** The texts and numbers of the beginning of a body, as `UPSTREAM_INVALID_TOKEN` can name them. */
export function valuesIn(body: string): Iterable<Value> {
  const start = body.slice(0, INSPECTED_BYTES).replace(BEFORE_THE_BODY, '')
  if (start.startsWith('<')) return xmlValues(start)
  return /^[{[]/.test(start) ? objectValues(start) : []
}

/** A byte order mark, and what JSONP puts in front. */
const BEFORE_THE_BODY = /^\uFEFF?\s*(?:[\w$.]{1,64}\(\s*)?/

function textNames(code: RegExp, text: string): boolean {
  const start = text.replace(BEFORE_THE_BODY, '')
  if (start.startsWith('{')) return objectNames(code, start)
  if (start.startsWith('[')) return false
  if (start.startsWith('<')) return xmlNames(code, start)
  return new URLSearchParams(start).getAll('error').some((value) => code.test(value.trim()))
}

// JSON and JSV in one: JSV is JSON without most of the quotes. A string that the end of the text cuts
// through swallows the rest.
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|".*|[{}[\],:]|[^\s"{}[\],:][^"{}[\],:]*/gs

function objectNames(code: RegExp, text: string): boolean {
  for (const { path, text: value } of objectWords(text)) {
    const [outer = '', inner] = path
    const isCode =
      path.length <= 2 &&
      isOneOf(CODE_MEMBERS, inner ?? outer) &&
      (inner === undefined || isOneOf(CODE_OBJECTS, outer))
    if (isCode && code.test(value.trim())) return true
  }
  return false
}

function isOneOf(names: ReadonlySet<string>, name: string): boolean {
  return names.has(name.trim().toLowerCase())
}

function xmlNames(code: RegExp, text: string): boolean {
  const [general = ''] = text.split(/<(?:[\w.-]+:)?errors[\s>]/i)
  for (const { name, text: value } of xmlElements(general))
    if (isOneOf(CODE_MEMBERS, name) && code.test(value)) return true
  return false
}

/** A whole text or number of a body, and the names that lead to it. */
interface Value {
  readonly path: readonly string[]
  readonly text: string
  /** Names count in any case. */
  readonly anyCase: boolean
}

function hasShape(values: Iterable<Value>, shapes: readonly TokenShape[]): boolean {
  for (const { path, text, anyCase } of values) {
    const isNamed = (names: readonly string[]) =>
      names.length === path.length &&
      names.every((name, at) => (anyCase ? isSameName(name, path[at]!) : name === path[at]))
    if (shapes.some((shape) => shape.path !== null && shape.value === text && isNamed(shape.path)))
      return true
  }
  return false
}

function isSameName(one: string, other: string): boolean {
  return one.toLowerCase() === other.toLowerCase()
}

/** Deeper values have no shape, and a path of many names would take long to copy. */
const MAX_PATH = 4

/** The texts and numbers of JSON or JSV. A word without quotes that the end of the text may cut is left out. */
function* objectValues(text: string): Generator<Value> {
  for (const word of objectWords(text)) {
    // In JSON a word without quotes is a number, true, false or null.
    const counts = word.quoted || (!word.isLast && (word.anyCase || /^-?\d/.test(word.text)))
    if (counts) yield word
  }
}

interface Word extends Value {
  readonly quoted: boolean
  /** The text ends with it, and may have cut it. */
  readonly isLast: boolean
}

/** The values of JSON or JSV that hold no others, up to `MAX_PATH` deep: what lies deeper is read and not yielded. */
function* objectWords(text: string): Generator<Word> {
  const open: { key: string; index: number | null; anyCase: boolean }[] = []
  let inValue = false
  for (const match of text.matchAll(TOKENS)) {
    const [token] = match
    const top = open.at(-1)
    if (token === '{' || token === '[') {
      open.push({ key: '', index: token === '[' ? 0 : null, anyCase: false })
      inValue = token === '['
    } else if (token === '}' || token === ']') {
      open.pop()
      inValue = true
    } else if (token === ',') {
      if (top && top.index !== null) top.index += 1
      inValue = top?.index !== null
    } else if (token === ':') inValue = true
    else if (top !== undefined) {
      const quoted = token.startsWith('"')
      if (!inValue) {
        top.key = quoted ? unquoted(token) : token.trim()
        top.anyCase = !quoted
      } else if (open.length <= MAX_PATH) {
        const path = open.map(({ key, index }) => (index === null ? key : String(index)))
        const anyCase = open.some((level) => level.anyCase)
        const isLast = match.index + token.length >= text.length
        yield { path, text: quoted ? unquoted(token) : token.trim(), anyCase, quoted, isLast }
      }
    }
  }
}

function unquoted(token: string): string {
  try {
    return JSON.parse(token) as string
  } catch {
    // A text of JSV, or one that the end of the body cuts: that has no second quote.
    return token.length > 1 && token.endsWith('"') ? token.slice(1, -1) : ''
  }
}

// Every alternative ends at the next `<` or at the end of the text, and a name can end at one place only, so that no
// text is read twice.
const XML_PARTS =
  /<!\[CDATA\[(.*?)(?:\]\]>|$)|<!--.*?(?:-->|$)|<[!?][^<>]*>?|<(\/?)([^\s<>/]+)((?:[\s/][^<>]*)?)>|([^<]+)/gs

/** The texts of elements that hold nothing else, by the names below the root element. */
function* xmlValues(text: string): Generator<Value> {
  for (const { open, text: value } of xmlElements(text))
    if (open.length > 1 && open.length <= MAX_PATH + 1)
      yield { path: open.slice(1), text: value, anyCase: true }
}

/** Elements at their ends. `open`: the names from the root to this one, to be copied; `text`: what stands right before the end. */
function* xmlElements(text: string): Generator<{ open: readonly string[]; name: string; text: string }> {
  const open: string[] = []
  let content = ''
  for (const [, data, slash, name, rest, plain] of text.matchAll(XML_PARTS)) {
    if (name === undefined) {
      content += data ?? plain ?? ''
      continue
    }
    if (slash === '/') {
      const own = open.at(-1)
      if (own !== undefined) yield { open, name: own, text: content.trim() }
      open.pop()
    } else if (!rest?.endsWith('/')) open.push(name.slice(name.indexOf(':') + 1))
    content = ''
  }
}

const HAS_ZSTD = typeof zlib.createZstdDecompress === 'function'

/** The content codings in which the search can read a body: zstd from Node 22.15 on. */
export const DECODED: readonly string[] = ['gzip', 'deflate', 'br', ...(HAS_ZSTD ? ['zstd'] : [])]

/**
 * The first characters of a body, its content coding undone. An unknown or broken coding gives what
 * could be read, possibly nothing. Never rejects.
 */
function decodedStart(chunks: Buffer[], contentEncoding: string | undefined): Promise<string> {
  const bytes = Buffer.concat(chunks).subarray(0, INSPECTED_BYTES)
  const coding = contentEncoding?.trim().toLowerCase()
  if (coding === undefined || coding === '' || coding === 'identity') return Promise.resolve(bytes.toString())
  const decoder = decoderFor(coding, bytes)
  if (decoder === null) return Promise.resolve('')
  return new Promise((resolve) => {
    const parts: Buffer[] = []
    let size = 0
    const finish = () => {
      decoder.destroy()
      resolve(Buffer.concat(parts).subarray(0, INSPECTED_BYTES).toString())
    }
    decoder.on('data', (part: Buffer) => {
      parts.push(part)
      size += part.length
      if (size >= INSPECTED_BYTES) finish()
    })
    decoder.on('end', finish)
    decoder.on('error', finish)
    decoder.end(bytes)
  })
}

function decoderFor(coding: string, bytes: Buffer) {
  switch (coding) {
    case 'gzip':
    case 'x-gzip':
      return zlib.createGunzip()
    case 'deflate':
      // Some servers send the raw form, which RFC 9110 section 8.4.1.2 mentions as an error to be expected.
      return ((bytes[0] ?? 0) & 0x0f) === 8 ? zlib.createInflate() : zlib.createInflateRaw()
    case 'br':
      return zlib.createBrotliDecompress()
    case 'zstd':
      return HAS_ZSTD ? zlib.createZstdDecompress() : null
    default:
      return null
  }
}
