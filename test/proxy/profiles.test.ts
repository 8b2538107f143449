import t from 'tap'
import { READINGS } from '../../sandbox/profiles.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'

const ALL_MEMBERS = { name: 'A', description: 'B', code: 'C', parentInfrastructureID: null }

for (const [profile, faults] of Object.entries(READINGS)) {
  t.test(`a page works on the platform "${profile}": sign-in, read, refresh, update, sign-out`, async (t) => {
    const sandbox = await startSandbox(t, { faults })
    // As `doctor --live` suggests it for a platform with a code of its own.
    const UPSTREAM_INVALID_TOKEN = '400:/responseStatus/errorCode=TokenExpired'
    const bff = await startBff(t, sandbox, { UPSTREAM_INVALID_TOKEN })
    const browser = bff.browser()
    await signIn(browser, sandbox)
    t.equal((await browser.fetch('/flux/temperature')).status, 200)
    sandbox.expireAccessTokens()
    t.equal((await browser.fetch('/flux/temperature')).status, 200, 'with a new token')
    const headers = { 'content-type': 'application/json' }
    const update = { method: 'PUT', headers, body: JSON.stringify(ALL_MEMBERS) }
    t.match((await browser.fetch('/site/42', update)).json(), ALL_MEMBERS)

    t.equal((await browser.fetch('/auth/logout', { method: 'POST' })).status, 204)
    t.equal((await browser.fetch('/flux/temperature')).status, 401)
  })
}
