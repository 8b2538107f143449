import t from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { siteCaller } from './site-caller.ts'

t.test('each call of the resource server names this server and has our request id', async (t) => {
  const { sandbox, put } = await siteCaller(t)
  const answer = await put('{"name":"N"}')
  const [entry] = sandbox.journal.entries({ endpoint: 'resource' })
  t.match(entry?.headers['user-agent'], /^token-handler-bff\/\d+\.\d+\.\d+$/)
  t.match(entry?.headers['x-request-id'], /^[0-9a-f]{12}-\w+$/)
  t.strictSame(answer.headers.get('x-request-id'), [entry?.headers['x-request-id']])
})

t.test('UPSTREAM_HEADERS go to the resource server, and never to the authorization server', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { UPSTREAM_HEADERS: '{"X-Api-Key":"s3cret-key"}' })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.expireAccessTokens()
  const answer = await browser.fetch('/flux/a', { headers: { 'x-api-key': 'of the browser' } })
  t.equal(answer.status, 200)
  const keys = (endpoint: 'resource' | 'token') =>
    sandbox.journal.entries({ endpoint }).map(({ headers }) => headers['x-api-key'])
  t.strictSame(keys('resource'), ['s3cret-key', 's3cret-key'], 'before and after the refresh')
  t.strictSame(keys('token'), [undefined, undefined])
  t.notMatch(bff.log(), /s3cret-key/)
  t.notMatch(JSON.stringify(answer.headers) + answer.text, /s3cret-key/)
})
