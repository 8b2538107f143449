import t from 'tap'
import { hasErrorCode, lifeSeconds, normalizeTokenResponse } from '../../src/oauth/token-response.ts'

t.test('expires_in of any type becomes a life in seconds', async (t) => {
  const cases: [given: unknown, seconds: number][] = [
    [undefined, 3_600],
    [null, 3_600],
    [3_600, 3_600],
    ['3600', 3_600],
    [1, 1],
    [1.9, 1],
    [0.5, 0],
    [0, 0],
    ['0', 0],
    [-5, 0],
    ['-5', 0],
    ['', 0],
    ['soon', 0],
    ['1e3', 0],
    [Number.NaN, 0],
    [true, 0],
    [{}, 0],
    [[], 0],
    [86_400, 86_400],
    [86_401, 86_400],
    ['99999999999999999999', 86_400],
    [1e300, 86_400],
    [Number.POSITIVE_INFINITY, 86_400],
  ]
  for (const [given, seconds] of cases) t.equal(lifeSeconds(given), seconds, String(given))
})

t.test('normalization changes only odd optional members and keeps unknown ones', async (t) => {
  const given = {
    access_token: 'a',
    token_type: 'mac',
    expires_in: 60,
    refresh_token: 'r',
    scope: 's',
    more: [1],
  }
  t.strictSame(normalizeTokenResponse(JSON.stringify(given)), given)
  t.strictSame(
    normalizeTokenResponse('{"access_token":"a","refresh_token":7,"scope":["s"],"id_token":"x"}'),
    { access_token: 'a', token_type: 'bearer', expires_in: 3_600 },
  )
})

t.test('a text that is not a JSON object is not normalized', async (t) => {
  for (const text of ['', '[]', 'null', '"text"', '{"a":', '<html>'])
    t.equal(normalizeTokenResponse(text), null)
})

t.test('a byte order mark before the object is ignored', async (t) => {
  t.strictSame(normalizeTokenResponse('\ufeff{"access_token":"a","expires_in":60}'), {
    access_token: 'a',
    token_type: 'bearer',
    expires_in: 60,
  })
  t.ok(hasErrorCode('\ufeff{"error":"invalid_grant"}'))
})

t.test('an error code is a non-empty string', async (t) => {
  t.ok(hasErrorCode('{"error":"invalid_grant"}'))
  for (const text of ['{"error":""}', '{"error":1}', '{}', '[]', 'invalid_grant']) t.notOk(hasErrorCode(text))
})
