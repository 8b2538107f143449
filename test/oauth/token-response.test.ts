import t from 'tap'
import { hasErrorCode, lifeSeconds, normalizeTokenResponse } from '../../src/oauth/token-response.ts'

t.test('expires_in of any type becomes a life in seconds', async (t) => {
  const cases: [seconds: number, ...given: unknown[]][] = [
    [3_600, undefined, null, 3_600, '3600'],
    [1, 1, 1.9],
    [0, 0.5, 0, '0', -5, '-5', '', 'soon', '1e3', Number.NaN, true, {}, []],
    [86_400, 86_400, 86_401, '99999999999999999999', 1e300, Number.POSITIVE_INFINITY],
  ]
  for (const [seconds, ...all] of cases)
    for (const given of all) t.equal(lifeSeconds(given), seconds, String(given))
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
  const least = { access_token: 'a', token_type: 'bearer', expires_in: 60 }
  t.strictSame(
    normalizeTokenResponse('\ufeff{"access_token":"a","expires_in":60}'),
    least,
    'a byte order mark',
  )
  for (const text of ['', '[]', 'null', '"text"', '{"a":', '<html>'])
    t.equal(normalizeTokenResponse(text), null, 'it is no JSON object')
})

t.test('an error code is a non-empty string', async (t) => {
  for (const mark of ['', '\ufeff']) t.ok(hasErrorCode(`${mark}{"error":"invalid_grant"}`))
  for (const text of ['{"error":""}', '{"error":1}', '{}', '[]', 'invalid_grant']) t.notOk(hasErrorCode(text))
})
