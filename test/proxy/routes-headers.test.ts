import t from 'tap'
import { field } from '../http/wire.ts'
import { proxyCaller } from './proxy-caller.ts'

t.test('each call of the resource server names this server and has our request id', async (t) => {
  const { sandbox, put } = await proxyCaller()
  const answer = await put('{"name":"N"}')
  const [entry] = sandbox.journal.entries()
  t.match(entry?.headers['user-agent'], /^token-handler-bff\/\d+\.\d+\.\d+$/)
  t.match(entry?.headers['x-request-id'], /^[0-9a-f]{12}-\w+$/)
  t.equal(field(answer, 'x-request-id'), entry?.headers['x-request-id'])
})

t.test('UPSTREAM_HEADERS go to the resource server, and never to the authorization server', async (t) => {
  const { sandbox, bff, browser } = await proxyCaller({ UPSTREAM_HEADERS: '{"X-Api-Key":"s3cret-key"}' })
  sandbox.expireAccessTokens()
  const answer = await browser.fetch('/flux/a', { headers: { 'x-api-key': 'of the browser' } })
  t.equal(answer.status, 200)
  t.strictSame(
    sandbox.journal.entries().map(({ endpoint, headers }) => [endpoint, headers['x-api-key']]),
    [
      ['resource', 's3cret-key'],
      ['token', undefined],
      ['resource', 's3cret-key'],
    ],
  )
  t.notMatch(bff.log(), /s3cret-key/)
  t.notMatch(JSON.stringify(answer.headers) + answer.text, /s3cret-key/)
})
