import t from 'tap'
import { proxyCaller } from './proxy-caller.ts'

t.test('UPSTREAM_HEADERS go to the resource server, and never to the authorization server', async (t) => {
  const { sandbox, bff, browser } = await proxyCaller({ UPSTREAM_HEADERS: '{"X-Api-Key":"s3cret-key"}' })
  sandbox.expireAccessTokens()
  const headers = { 'x-api-key': 'of the browser', 'content-type': 'application/json' }
  const answer = await browser.fetch('/site/1', { method: 'PUT', headers, body: '{}' })
  t.equal(answer.status, 200)
  await browser.fetch('/flux/a', { headers })
  t.strictSame(
    sandbox.journal.entries().map(({ endpoint, headers }) => [endpoint, headers['x-api-key']]),
    [
      ['resource', 's3cret-key'],
      ['token', undefined],
      ['resource', 's3cret-key'],
      ['resource', 's3cret-key'],
    ],
  )
  t.notMatch(bff.log(), /s3cret-key/)
  t.notMatch(JSON.stringify(answer.headers) + answer.text, /s3cret-key/)
})
