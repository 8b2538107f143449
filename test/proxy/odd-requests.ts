import fc from 'fast-check'
import type { Question } from '../http/wire.ts'

/** Found nowhere but in what the browser sends. */
export const CANARY = 'c4n4ry'

const ODD = [
  '..',
  '.',
  '%2e',
  '%2f',
  '%5c',
  '%00',
  '%0d%0a',
  '//',
  '/',
  '\\',
  ';',
  '?',
  '&',
  '=',
  '+',
  '%25',
  '%',
  '#',
  '@',
  ':',
  'é',
  ' ',
  '"',
  '<',
  '{',
]
const WORDS = [
  'flux',
  'site',
  'DEMO',
  'ACME',
  'a',
  '42',
  'json',
  'reply',
  'UpdateSite',
  'Infrastructure',
  'Site',
  'oauth',
  'token',
  '.json',
  CANARY,
]
const NAMES = [
  'access_token',
  'oauth_token',
  'callback',
  'format',
  'Access_Token',
  'access%5ftoken',
  'x',
  'jsconfig',
  'wac',
  'siteID',
  CANARY,
]
const FIELDS = [
  'Authorization',
  'Cookie',
  'X-Forwarded-For',
  'X-Forwarded-Host',
  'Forwarded',
  'X-HTTP-Method-Override',
  'X-Method-Override',
  'X-Original-URL',
  'X-Rewrite-URL',
  'Proxy-Authorization',
  'Connection',
  'TE',
  'Trailer',
  'Upgrade',
  'Keep-Alive',
  'Referer',
  'User-Agent',
  'X-CSRF',
  'X-Access-Token',
  'Accept-Charset',
  'Range',
  'If-None-Match',
  'Accept-Language',
  'Accept-Encoding',
  'Accept',
  'Via',
  'traceparent',
  'Content-Language',
  'From',
  'Max-Forwards',
  'DNT',
  'Sec-Fetch-User',
  'Host',
]

const visible = fc.stringMatching(/^[\x21-\x7e]{0,12}$/)
const piece = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...WORDS) },
  { weight: 3, arbitrary: fc.constantFrom(...ODD) },
  { weight: 1, arbitrary: visible },
)
const segment = fc.array(piece, { maxLength: 4 }).map((pieces) => pieces.join(''))
const goodSegment = fc.oneof(
  { weight: 2, arbitrary: fc.constantFrom('a', 'DEMO', '42') },
  { weight: 1, arbitrary: segment },
)
const parameter = fc
  .tuple(fc.oneof(fc.constantFrom(...NAMES), visible), fc.oneof(fc.constant(CANARY), visible, segment))
  .map(([name, value]) => `${name}=${value}`)
const ROUTES = [
  ['GET', '/flux/a'],
  ['HEAD', '/flux/a'],
  ['GET', '/flux/ACME/a.b~c'],
  ['PUT', '/site/42'],
  ['PUT', '/site/ACME/42.json'],
  ['POST', '/site'],
] as const
const start = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...ROUTES) },
  {
    weight: 2,
    arbitrary: fc.tuple(
      fc.constantFrom('GET', 'HEAD', 'PUT', 'POST'),
      fc
        .tuple(
          fc.constantFrom('/flux', '/flux', '/site', '/Flux', '//flux', '/x/../flux'),
          fc.array(goodSegment, { minLength: 1, maxLength: 3 }),
        )
        .map(([first, segments]) => [first, ...segments].join('/')),
    ),
  },
)
const query = fc.oneof(
  fc.constant([]),
  fc.array(
    fc.oneof(
      { weight: 3, arbitrary: fc.constantFrom('x=1', 'format=json', `note=${CANARY}`) },
      { weight: 1, arbitrary: parameter },
    ),
    { maxLength: 3 },
  ),
)
const value = fc.oneof(
  fc.constant(`Bearer ${CANARY}`),
  fc.constant(`${CANARY}, authorization, via, close`),
  fc.constant('application/json'),
  fc.stringMatching(/^[\x21-\x7e]([\x20-\x7e]{0,20}[\x21-\x7e])?$/),
)
/** A request that may be good, or odd in any of its parts. */
export const question: fc.Arbitrary<Question> = fc
  .tuple(
    start,
    query,
    fc.array(fc.tuple(fc.constantFrom(...FIELDS), value), { maxLength: 6 }),
    fc.constantFrom('{}', '{"siteID":42}', '{"name":"n","siteID":42}', `{"${CANARY}":1}`, '['),
  )
  .map(([[method, path], parameters, headers, body]) => ({
    method,
    target: path + (parameters.length > 0 ? `?${parameters.join('&')}` : ''),
    headers,
    body,
  }))
