import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { serverVariables, TOKEN_SECONDS } from '../../demo/settings.ts'
import { environmentFor } from '../../sandbox/profile.ts'
import { PROFILES, READINGS } from '../../sandbox/profiles.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import type { Browser } from '../helpers/browser.ts'
import { codeBlock, tableRows } from '../helpers/documentation.ts'
import { freePort } from '../helpers/ports.ts'
import { presentations } from '../helpers/replicas.ts'
import { documented, HEADINGS, PAGE } from '../helpers/servers/documented.ts'
import { startAtProfile } from '../helpers/servers/profile.ts'
import { CLIENT, decide, signIn, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { read } from '../repository/files.ts'

t.jobs = 6

const ORIGIN = 'https://auth.example.com'
const OPERATIONS = fileURLToPath(new URL('../../demo/page/operations.json', import.meta.url))

t.test('the page on servers has the environment, version and day of each profile', async (t) => {
  t.strictSame(Object.keys(HEADINGS).sort(), Object.keys(PROFILES).sort())
  t.equal(tableRows(PAGE, 'What happens there').length, Object.keys(PROFILES).length)
  const sections = read(PAGE).split(/^## /m)
  for (const [name, heading] of Object.entries(HEADINGS)) {
    const profile = PROFILES[name]!
    const lines = Object.entries(environmentFor(profile, ORIGIN)).map(
      ([variable, value]) => `${variable}=${value}\n`,
    )
    t.equal(codeBlock(PAGE, heading, 'sh'), lines.join(''), heading)
    const section = (sections.find((text) => text.startsWith(`${heading}\n`)) ?? '').replace(/\s+/g, ' ')
    const { software, version, measuredOn, kept } = profile
    t.ok(section.includes(`Measured: ${software} ${version}, ${measuredOn}.`), heading)
    if (kept === undefined) continue
    const [[variable, value] = []] = Object.entries(kept.env)
    t.ok(
      section.includes(`**To keep it**: \`${kept.setting}\` there, and \`${variable}=${value}\` here.`),
      heading,
    )
  }
})

for (const [name, heading] of Object.entries(HEADINGS)) {
  const profile = PROFILES[name]!
  const says = documented(name)

  t.test(
    `at ${heading} sign-in, calls, refusal, second browser, withdrawal and sign-out go as documented`,
    async (t) => {
      const { sandbox, bff } = await startAtProfile(t, profile)
      const browser = bff.browser()
      const back = await signIn(browser, sandbox)
      t.equal(back.status, 303, back.text)
      t.equal((await browser.fetch('/flux/temperature')).status, 200)

      sandbox.expireAccessTokens()
      const old = bearerOf(sandbox)
      t.equal((await browser.fetch('/flux/temperature')).status, 200, 'with a new token')
      t.not(bearerOf(sandbox), old)

      t.equal(await refusalOf(bff.browser(), sandbox), says.refusal)

      const [older, other] = [bff.browser(), bff.browser()]
      await signIn(older, sandbox)
      await signIn(other, sandbox)
      sandbox.expireAccessTokens()
      t.equal((await other.fetch('/flux/temperature')).status, 200)
      const first = (await older.fetch('/flux/temperature')).status
      t.equal(
        first === 200
          ? 'both stay'
          : first === 401
            ? 'the older one is signed out at its next refresh'
            : String(first),
        says.secondBrowser,
      )

      const signedOut = bff.browser()
      await signIn(signedOut, sandbox)
      t.equal((await signedOut.fetch('/flux/temperature')).status, 200)
      const bearer = bearerOf(sandbox)
      const out = await signedOut.fetch('/auth/logout', { method: 'POST' })
      t.equal(out.status, profile.paths.endSession ? 200 : 204)
      if (out.status === 200) await comesBack(t, String(out.json().endSessionUrl), bff.publicUrl)
      t.equal((await signedOut.fetch('/flux/temperature')).status, 401)
      if (profile.paths.revoke !== null)
        await until('the refresh token and the access token are revoked', async () => {
          return sandbox.journal.entries({ endpoint: 'revoke', outcome: 'revoked' }).length >= 2
        })
      const isDead = !(
        await fetch(`${sandbox.baseUrl}/DEMO/flux/x`, { headers: { authorization: `Bearer ${bearer}` } })
      ).ok
      t.equal(isDead ? 'both tokens end' : 'nothing ends there', says.signOut)

      const last = bff.browser()
      await signIn(last, sandbox)
      t.equal((await last.fetch('/flux/temperature')).status, 200)
      sandbox.revokeAll()
      t.equal(await endOf(last, sandbox), says.withdrawn)
    },
  )

  t.test(`at ${heading} tokens are refreshed in the background over four lives, none twice`, async (t) => {
    const { sandbox, bff } = await startAtProfile(t, profile, { faults: { tokenLifeSeconds: 2 } })
    const browser = bff.browser()
    await signIn(browser, sandbox)
    await until('four refreshes', async () => presentations(sandbox).length >= 4)
    t.equal((await browser.fetch('/flux/temperature')).status, 200)
    const sent = presentations(sandbox)
    t.strictSame([...new Set(sent.map(({ outcome }) => outcome ?? 'granted'))], ['granted'])
    const distinct = new Set(sent.map(({ form }) => form?.refresh_token)).size
    t.equal(distinct, says.refresh === 'new refresh token' ? sent.length : 1)
  })

  t.test(`at ${heading} an outage of its database ends no session`, async (t) => {
    const { sandbox, bff } = await startAtProfile(t, profile)
    const browser = bff.browser()
    await signIn(browser, sandbox)
    sandbox.faults.set({ database: 'away' })
    sandbox.expireAccessTokens()
    const during = await browser.fetch('/flux/temperature')
    t.ok(during.status >= 500, String(during.status))
    sandbox.faults.set({ database: 'there' })
    await until('it goes on', async () => (await browser.fetch('/flux/temperature')).status === 200)
  })
}

for (const [name, options] of [
  ...Object.entries(PROFILES).map(([name, profile]) => [name, { profile }] as const),
  ...Object.entries(READINGS).map(([name, faults]) => [name, { faults }] as const),
])
  t.test(`in the demo with SANDBOX_PROFILE=${name} a user signs in, reads and signs out`, async (t) => {
    const port = await freePort()
    const publicUrl = `http://localhost:${port}`
    const { clientId: id, clientSecret: secret } = CLIENT
    const client = { ...CLIENT, callback: `${publicUrl}/auth/callback` }
    const sandbox = await startSandbox(t, { ...options, client, tokenLifeSeconds: TOKEN_SECONDS })
    const { url: sandboxUrl, env: profile } = sandbox
    const setting = { publicUrl, sandboxUrl, profile, client: { id, secret }, operations: OPERATIONS }
    const bff = await startBff(t, sandbox, { PORT: String(port), ...serverVariables(setting) })
    const browser = bff.browser()
    const back = await signIn(browser, sandbox, '/')
    t.equal(back.status, 303, back.text)
    t.equal((await browser.fetch('/flux/temperature')).status, 200)
    const out = await browser.fetch('/auth/logout', { method: 'POST' })
    t.equal(out.status, profile.OAUTH_END_SESSION_URL === undefined ? 204 : 200)
    if (out.status === 200) await comesBack(t, String(out.json().endSessionUrl), publicUrl)
    t.equal((await browser.fetch('/flux/temperature')).status, 401)
  })

/** Where the browser ends that is sent to sign out at the authorization server. */
async function comesBack(t: Test, endSessionUrl: string, publicUrl: string): Promise<void> {
  const { status, headers } = await fetch(endSessionUrl, { redirect: 'manual' })
  t.strictSame([status, headers.get('location')], [302, `${publicUrl}/`])
}

/** The access token that the resource server received last. */
function bearerOf(sandbox: Sandbox): string {
  const { headers } = sandbox.journal.entries({ endpoint: 'resource' }).at(-1)!
  return /^Bearer (.+)$/.exec(String(headers.authorization))?.[1] ?? ''
}

async function refusalOf(browser: Browser, sandbox: Sandbox): Promise<string> {
  const start = await browser.navigate('/auth/login')
  const back = await decide(sandbox, String(start.headers.location), 'refuse').catch(() => null)
  if (back === null) return 'stays at the server'
  const { headers } = await browser.navigate(back, { from: 'cross-site' })
  const error = new URL(String(headers.location), 'http://localhost').searchParams.get('login_error')
  return `\`${error}\``
}

/** When a session notices that its grant has ended at the server. */
async function endOf(browser: Browser, sandbox: Sandbox): Promise<string> {
  const next = await browser.fetch('/flux/temperature')
  if (next.status === 401) return 'signed out at the next call'
  if (next.status === 503) {
    await signIn(browser, sandbox)
    const after = (await browser.fetch('/flux/temperature')).status
    return after === 200 ? '503 until the user signs in again' : String(after)
  }
  sandbox.expireAccessTokens()
  const later = (await browser.fetch('/flux/temperature')).status
  return later === 401 ? 'signed out at the next refresh' : String(later)
}
