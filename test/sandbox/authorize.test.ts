import t from 'tap'
import { authorizeUrl, decide, REDIRECT_URI, startSandbox } from './started.ts'

t.test('a wrong client, or a redirect address on another host, gets a page, no redirect', async (t) => {
  const sandbox = await startSandbox(t)
  const [, path] = REDIRECT_URI.split(':3000')
  const hosts = [
    ...['evil.example', 'app.localhost.evil.example', 'app.localhost@evil.example'],
    ...['user@app.localhost:3000', 'evil.example\\@app.localhost', 'app.localhost:99999'],
  ]
  const hostile = [
    ...[null, '', path!, `//app.localhost${path}`, `javascript://app.localhost/%0aalert(1)`],
    ...hosts.map((host) => `http://${host}${path}`),
    ...[`${REDIRECT_URI}#fragment`, `${REDIRECT_URI}\nb`],
  ]
  const addresses = hostile.map((uri) => authorizeUrl(sandbox, { redirect_uri: uri }))
  const url = authorizeUrl(sandbox)
  for (const wrong of [
    ...addresses,
    authorizeUrl(sandbox, { client_id: 'other' }),
    `${url}&client_id=the+client%2F1`,
  ]) {
    const response = await decide(wrong)
    t.equal(response.status, 400, wrong)
    t.equal(response.headers.get('location'), null)
  }
  const otherPort = await decide(authorizeUrl(sandbox, { redirect_uri: 'https://app.localhost/other?x=1' }))
  t.match(otherPort.headers.get('location'), /^https:\/\/app\.localhost\/other\?x=1&code=/)
})

t.test('exactRedirect accepts only the registered callback', async (t) => {
  const sandbox = await startSandbox(t, { faults: { exactRedirect: true } })
  t.equal((await decide(authorizeUrl(sandbox))).status, 400)
  const registered = { redirect_uri: 'http://app.localhost:3000/auth/callback' }
  t.equal((await decide(authorizeUrl(sandbox, registered))).status, 302)
})
