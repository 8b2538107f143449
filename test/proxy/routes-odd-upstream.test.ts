import t from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'

t.test('a status that HTTP does not have, with a page, is 502 and a problem', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.faults.set({
    resource: { mode: 'status', status: 999, headers: { 'content-type': 'text/html' }, body: '<p>no</p>' },
  })
  const answer = await browser.fetch('/flux/temperature')
  t.equal(answer.status, 502, answer.text)
  t.equal(answer.headers['content-type'], 'application/problem+json; charset=utf-8')
  t.equal(answer.json().code, 'upstream_unavailable')
})

t.test('a Content-Type that is mostly spaces is 415 without a search', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const begin = process.cpuUsage()
  for (let attempt = 0; attempt < 20; attempt += 1) {
    const headers = { 'content-type': `application/json${' '.repeat(12_000)}x` }
    const answer = await bff.browser().fetch('/site/1', { method: 'PUT', headers, body: '{}' })
    t.equal(answer.status, 415)
  }
  const { user } = process.cpuUsage(begin)
  // A search that goes back for each space takes twenty times a tenth of a second.
  t.ok(user < 1_000_000, `${user} microseconds`)
})
