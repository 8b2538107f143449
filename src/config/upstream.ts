import { jsonFaults, jsonObject } from '../json.ts'
import { Secret } from '../secret.ts'
import { type Kind, listOf, quoted, Refused } from './kinds.ts'

/** A header field of each call of the resource server. */
export interface FixedHeader {
  readonly name: string
  readonly value: Secret
}

const MAX_FIELDS = 16
const ACCEPTS = 'a JSON object of header fields and their values'

const NAME = /^[!#$%&'*+.^`|~\w-]+$/
const VALUE = /^[\x21-\x7e](?:[\x20-\x7e]{0,4094}[\x21-\x7e])?$/

// The server sets these itself, or they describe one connection, one body or one reader.
const OWN_NAME =
  /^(?:host|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect|via|authorization|cookie|user-agent|x-request-id|traceparent|tracestate|range|forwarded|x-http-method(?:-override)?|x-method-override|_method|content-.*|accept.*|if-.*|proxy-.*|x-forwarded-.*)$/i

/** Header fields for the resource server alone. A fault names the field and never its value. */
export const FIXED_HEADERS: Kind<readonly FixedHeader[]> = {
  accepts: ACCEPTS,
  read(text) {
    const fields = jsonObject(text)
    if (fields === null) return new Refused(`must be ${ACCEPTS}`)
    const names = Object.keys(fields)
    const lower = names.map((name) => name.toLowerCase())
    const repeated = new Set(lower.filter((name, at) => lower.indexOf(name) !== at))
    for (const { kind, pointer } of jsonFaults(text)) {
      if (kind === 'repeated') repeated.add(pointer.slice(1).toLowerCase())
    }
    const faults = [
      ...(names.length > MAX_FIELDS
        ? [`must have at most ${MAX_FIELDS} fields, but has ${names.length}`]
        : []),
      ...[...repeated].map((name) => `names ${name} twice`),
      ...names.flatMap((name) => faultOf(name, fields[name])),
    ]
    if (faults.length > 0) return new Refused(faults)
    return names.map((name) => ({ name, value: new Secret(String(fields[name])) }))
  },
}

function faultOf(name: string, value: unknown): string[] {
  if (!NAME.test(name)) return [`has no header name in ${quoted(name)}`]
  if (OWN_NAME.test(name)) return [`must not set ${name}`]
  if (typeof value === 'string' && VALUE.test(value)) return []
  return [`must give ${name} 1 to 4096 characters of visible ASCII, with blanks only inside`]
}

/** A further shape of the invalid-token response. */
export type TokenShape =
  /** This text or number at this place of the body; `path`: the names of the pointer. */
  | { readonly status: number; readonly path: readonly string[]; readonly value: string }
  /** No body at all. */
  | { readonly status: number; readonly path: null }

// Only these statuses say that nothing was done, and the request is sent again after a refresh.
const SHAPE = /^(400|401|403):(?:empty|((?:\/[A-Za-z0-9_]+){1,4})=([A-Za-z0-9_.-]{1,64}))$/

const TOKEN_SHAPE: Kind<TokenShape> = {
  accepts:
    '`STATUS:/json/pointer=VALUE` (the status 400, 401 or 403, 1 to 4 names of `A-Z a-z 0-9 _`, and a code of 1 to 64 of `A-Z a-z 0-9 _ . -`) or `STATUS:empty` for a response without a body',
  read(text) {
    const [, status, pointer, value = ''] = SHAPE.exec(text) ?? []
    if (status === undefined) return new Refused(`must be ${TOKEN_SHAPE.accepts}, but is ${quoted(text)}`)
    if (pointer === undefined) return { status: Number(status), path: null }
    return { status: Number(status), path: pointer.slice(1).split('/'), value }
  },
}

/** The further shapes of the invalid-token response. */
export const TOKEN_SHAPES = listOf(TOKEN_SHAPE)
