import zlib from 'node:zlib'
import t from 'tap'
import {
  bodyNamesInsufficientScope,
  bodyNamesInvalidToken,
  challengeNamesInvalidToken,
} from '../../src/proxy/invalid-token.ts'

const named = (text: string): Promise<boolean> => bodyNamesInvalidToken([Buffer.from(text)], undefined)

t.test('a challenge that names it is found, and no other', (t) => {
  for (const [challenge, names] of [
    ['Bearer error="invalid_token"', true],
    ['Bearer realm="a, b", error="invalid_token", error_description="expired"', true],
    ['Bearer error=invalid_token', true],
    ['Basic realm="x", Bearer ERROR = "Invalid_Token"', true],
    [['Basic realm="x"', 'Bearer error="invalid_token"'], true],
    [undefined, false],
    ['', false],
    ['Bearer', false],
    ['Bearer error="insufficient_scope"', false],
    ['Bearer error_description="error=invalid_token"', false],
    ['Bearer error_description="a \\" error=\\"invalid_token\\" b"', false],
    ['Bearer x_error="invalid_token"', false],
    ['Bearer error="not_invalid_token"', false],
  ] as [challenge: string | string[] | undefined, names: boolean][])
    t.equal(challengeNamesInvalidToken(challenge), names, `${challenge}`)
  t.end()
})

t.test('a body that names it is found', async (t) => {
  for (const body of [
    '{"error":"invalid_token"}',
    '\uFEFF { "error_description": "x, {y}", "error" : "Invalid_Token" }',
    '{"error":{"code":"invalid_token","message":"x"}}',
    '{"code":"InvalidToken"}',
    '{"errorCode":"invalid_token"}',
    '{"ResponseStatus":{"ErrorCode":"InvalidToken","Message":"Token has expired","Errors":[]}}',
    '{"data":{"a":[1,{"b":2}]},"responseStatus":{"errors":[{"errorCode":"NotNull"}],"errorCode":"invalid_token"}}',
    `{"error":"invalid_token","error_description":"${'x'.repeat(20_000)}`,
    'callback.name({"error":"invalid_token"})',
    '{ResponseStatus:{ErrorCode:InvalidToken,Message:Token is expired}}',
    '{ResponseStatus:{Message:"He said ""no"", twice",ErrorCode:InvalidToken}}',
    '<?xml version="1.0"?><ErrorResponse><ResponseStatus><ErrorCode>InvalidToken</ErrorCode></ResponseStatus></ErrorResponse>',
    '<o:error xmlns:o="x"> invalid_token </o:error>',
    'error=invalid_token&error_description=expired',
  ])
    t.ok(await named(body), body.slice(0, 90))
})

t.test('a body that names insufficient_scope is found in the same places', async (t) => {
  for (const [body, names] of [
    ['{"error":"insufficient_scope"}', true],
    ['{ResponseStatus:{ErrorCode:InsufficientScope}}', true],
    ['<error>insufficient_scope</error>', true],
    ['error=insufficient_scope', true],
    ['{"error":"access_denied","error_description":"insufficient_scope"}', false],
    ['["insufficient_scope"]', false],
    ['{"error":"invalid_token"}', false],
    ['', false],
  ] as const) {
    t.equal(await bodyNamesInsufficientScope([Buffer.from(body)], undefined), names, body)
    t.equal(await bodyNamesInsufficientScope([zlib.gzipSync(body)], 'gzip'), names, body)
  }
})

const BODY = Buffer.from('{"error":"invalid_token"}')

t.test('a body in a known coding is decoded, however it is split', async (t) => {
  for (const [coding, bytes] of [
    [undefined, BODY],
    ['identity', BODY],
    ['gzip', zlib.gzipSync(BODY)],
    ['X-GZIP', zlib.gzipSync(BODY)],
    ['deflate', zlib.deflateSync(BODY)],
    ['deflate', zlib.deflateRawSync(BODY)],
    ['br', zlib.brotliCompressSync(BODY)],
  ] as const) {
    const bytewise = Array.from(bytes, (byte) => Buffer.from([byte]))
    for (const chunks of [[bytes], bytewise]) t.ok(await bodyNamesInvalidToken(chunks, coding), `${coding}`)
  }
  for (const coding of ['compress', 'gzip, br', 'gzip', 'br'])
    t.notOk(await bodyNamesInvalidToken([BODY], coding), `${coding}, unknown or broken`)
  t.notOk(await bodyNamesInvalidToken([], 'gzip'), 'no body')
})

t.test('the beginning of a cut compressed body is decoded as far as it goes', async (t) => {
  const noise = Array.from({ length: 60_000 }, (_, i) => ((i * 2654435761) >>> 8).toString(36)).join('')
  const whole = zlib.gzipSync(`{"error":"invalid_token","x":"${noise}"}`)
  t.ok(whole.length > 20_000)
  t.ok(await bodyNamesInvalidToken([whole.subarray(0, 20_000)], 'gzip'))
})

t.test('a compressed body is decoded to 16 KiB and no further', async (t) => {
  const name = '"error":"invalid_token"'
  const padded = (size: number) => zlib.gzipSync(`{"x":"${'a'.repeat(size)}",${name}}`)
  const before = '{"x":"",'.length
  t.ok(await bodyNamesInvalidToken([padded(16_384 - before - name.length)], 'gzip'), 'the last that fits')
  t.notOk(await bodyNamesInvalidToken([padded(16_384 - before - name.length + 1)], 'gzip'), 'one more')
})

t.test('a decompression bomb is not decoded to its end', async (t) => {
  const params = { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 }
  const bomb = zlib.brotliCompressSync(Buffer.alloc(100_000_000, 'a'), { params })
  const cost = async (decode: () => unknown): Promise<number> => {
    const begin = process.cpuUsage()
    await decode()
    const { user, system } = process.cpuUsage(begin)
    return user + system
  }
  const whole = await cost(() => zlib.brotliDecompressSync(bomb))
  const part = await cost(async () => t.notOk(await bodyNamesInvalidToken([bomb], 'br')))
  t.ok(part < whole / 2, `${part} of ${whole} microseconds`)
})

const SHAPES = [
  { status: 400, path: ['responseStatus', 'errorCode'], value: 'TokenExpired' },
  { status: 400, path: ['code'], value: '4011' },
  { status: 400, path: ['errors', '1', 'code'], value: 'expired' },
  { status: 400, path: ['a', 'b', 'c', 'd'], value: 'deep' },
]
const shaped = (text: string): Promise<boolean> =>
  bodyNamesInvalidToken([Buffer.from(text)], undefined, { shapes: SHAPES })

t.test('a body of a configured shape is found', async (t) => {
  for (const body of [
    '{"responseStatus":{"errorCode":"TokenExpired"}}',
    '{"responseStatus":{"errors":[{"x":{}}],"errorCode" : "Token\\u0045xpired"}}',
    '{"code":4011}',
    '{"code":"4011","a":{"b":{"c":{"d":1}}}}',
    '{"a":{"b":{"c":{"d":"deep"}}}}',
    '{"errors":[{"code":"other"},{"code":"expired"}]}',
    'callback({"code":4011})',
    `{"code":4011,"text":"${'x'.repeat(20_000)}`,
    '{"code":"4011","cut":"of',
    '{responseStatus:{errorCode:TokenExpired}}',
    '{ResponseStatus:{Message:"a, ""b""",ErrorCode:TokenExpired,Errors:[',
    '{Code:4011}',
    '<E><ResponseStatus><ErrorCode>TokenExpired</ErrorCode></ResponseStatus></E>',
    '<?xml version="1.0"?><!-- <Code>1</Code> --><x:E xmlns:x="u"><x:CODE a="b"> 4011 </x:CODE>',
    '<E><code><![CDATA[4011]]></code><cut>of',
    '<E><empty/><a><b><c><d>deep</d></c></b></a></E>',
  ])
    t.strictSame([await shaped(body), await named(body)], [true, false], body.slice(0, 90))
})

t.test('a body that names it elsewhere, or has no configured shape, is not', async (t) => {
  for (const body of [
    '',
    'invalid_token',
    '[{"error":"invalid_token"}]',
    '{"error":"invalid_request","error_description":"invalid_token"}',
    '{"error":"invalid_request","error_description":"\\"error\\":\\"invalid_token\\""}',
    '{"message":"the invalid_token"}',
    '{"site":{"code":"invalid_token"}}',
    '{"name":"error","value":"invalid_token"}',
    '{"responseStatus":{"errorCode":"ValidationException","errors":[{"errorCode":"invalid_token","fieldName":"Code"}]}}',
    '{"error":{"details":{"code":"invalid_token"}}}',
    '{"error":"invalid_token_format"}',
    '{"description":"cut off, \\"error\\":\\"invalid_token\\", still the text',
    '{ResponseStatus:{ErrorCode:Validation,Message:"x,ErrorCode:InvalidToken,"}}',
    '{ResponseStatus:{ErrorCode:Validation,Message:bad error:invalid_token}}',
    '<ErrorResponse><ErrorCode>Validation</ErrorCode><Errors><Error><ErrorCode>InvalidToken</ErrorCode></Error></Errors></ErrorResponse>',
    '<Message>&lt;error&gt;invalid_token&lt;/error&gt;</Message>',
    'message=error%3Dinvalid_token',
    '{"responseStatus":{"errorCode":"tokenexpired"}}',
    '{"ResponseStatus":{"ErrorCode":"TokenExpired"}}',
    '{"responseStatus":{"errorCode":"TokenExpired, or so"}}',
    '{"x":{"responseStatus":{"errorCode":"TokenExpired"}}}',
    '{"responseStatus":[{"errorCode":"TokenExpired"}]}',
    '{"errorCode":"TokenExpired"}',
    '{"code":40110}',
    '{"code":4011',
    '{"code":4011.0}',
    '{"code":"4011',
    '{"message":"\\"code\\":4011"}',
    '{"errors":[{"code":"expired"},{"code":"other"}]}',
    '{"a":{"b":{"c":{"d":{"e":"deep"}}}}}',
    '[{"code":4011}]',
    '{Code:4011',
    '{Message:"x,Code:4011,"}',
    '<Code>4011</Code>',
    '<E><Code>4011',
    '<E><x><Code>4011</Code></x></E>',
    '<E><Code>4011</Cod',
    '<E><!-- <Code>4011</Code> --></E>',
    '<E><Code>40<b/>11</Code></E>',
    '<E><Text>&lt;Code&gt;4011&lt;/Code&gt;</Text></E>',
    'code=4011',
    '4011',
  ])
    t.notOk(await shaped(body), body.slice(0, 90))
})

/** How many elements `Array` methods go through, and characters patterns take, until this is done. */
async function stepsOf(search: () => Promise<unknown>): Promise<number> {
  let steps = 0
  const restore: (() => void)[] = []
  const count = (owner: object, name: PropertyKey, cost: (self: never, result: never) => number): void => {
    const own = Object.getOwnPropertyDescriptor(owner, name)!
    const inner = own.value as (...given: unknown[]) => unknown
    const counted = function (this: unknown, ...given: unknown[]): unknown {
      const result = inner.apply(this, given)
      steps += cost(this as never, result as never)
      return result
    }
    Object.defineProperty(owner, name, { ...own, value: counted })
    restore.push(() => Object.defineProperty(owner, name, own))
  }
  const length = (self: { length: number }): number => self.length
  for (const name of ['map', 'some', 'every', 'slice', Symbol.iterator]) count(Array.prototype, name, length)
  count(RegExp.prototype, 'exec', (_self, match: string[] | null) => 1 + (match?.[0]?.length ?? 0))
  try {
    await search()
  } finally {
    for (const put of restore) put()
  }
  return steps
}

t.test('the search takes twice as many steps for a body twice as long', async (t) => {
  const tags = ['<a', '<a>', '<a></a>', '<error>x</error>', '<!--', '<![CDATA[', '<?', '</', '<a b="']
  const parts = [
    '{',
    '[',
    '"',
    '\\',
    '{"a":',
    '{a:1',
    '{error:1',
    '[,',
    'a:',
    '<error ',
    'a=',
    '"\\',
    ' ',
    ...tags,
  ]
  for (const part of parts)
    for (const start of ['', '{', '[', '<', '<e>']) {
      const stepsFor = (bytes: number) => stepsOf(() => shaped(start + part.repeat(bytes / part.length)))
      const [short, long] = [await stepsFor(4_096), await stepsFor(8_192)]
      t.ok(long < 2.2 * short + 100, `${start}${part}: ${short}, ${long}`)
    }
})

t.test('a whole body without a byte has the shape `empty`, and no other body', async (t) => {
  const shapes = [{ status: 403, path: null }]
  t.ok(await bodyNamesInvalidToken([], undefined, { shapes, isWhole: true }))
  t.ok(await bodyNamesInvalidToken([Buffer.alloc(0)], 'gzip', { shapes, isWhole: true }))
  t.notOk(await bodyNamesInvalidToken([], undefined, { shapes }), 'more may come')
  t.notOk(await bodyNamesInvalidToken([], undefined, { isWhole: true }))
  t.notOk(await bodyNamesInvalidToken([Buffer.from(' ')], undefined, { shapes, isWhole: true }))
})
