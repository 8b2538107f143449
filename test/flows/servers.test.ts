import t, { type Test } from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import { environmentFor, type Profile } from '../../sandbox/profile.ts'
import { PROFILES } from '../../sandbox/profiles.ts'
import type { Answer, Browser } from '../helpers/browser.ts'
import { codeBlock, tableRows } from '../helpers/documentation.ts'
import { freePort } from '../helpers/ports.ts'
import { presentations } from '../helpers/replicas.ts'
import { CLIENT, decide, signIn, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { read } from '../repository/files.ts'

t.jobs = 3

const PAGE = 'docs/servers.md'
const ORIGIN = 'https://auth.example.com'
/** Headings of the page by the profile that is described there. */
const HEADINGS: Record<string, string> = {
  'django-oauth-toolkit': 'django-oauth-toolkit 1.7',
  'django-oauth-toolkit-3': 'django-oauth-toolkit 3.4',
  doorkeeper: 'Doorkeeper',
  'lemonldap-ng': 'LemonLDAP::NG',
  glewlwyd: 'glewlwyd',
  'oidc-provider': 'oidc-provider',
  'node-oauth2-server': 'node-oauth2-server',
  oauth2orize: 'oauth2orize',
  keycloak: 'Keycloak',
  hydra: 'Ory Hydra',
  'spring-authorization-server': 'Spring Authorization Server',
  authlib: 'Authlib',
  dex: 'Dex',
}

/** What the page says of a server: the cells of its row. */
interface Documented {
  refresh: string
  oldAccess: string
  lostAnswer: string
  secondBrowser: string
  withdrawn: string
  signOut: string
  refusal: string
}

function documented(heading: string): Documented {
  const row = tableRows(PAGE, 'What happens there').find(([cell]) => cell?.startsWith(`[${heading}](`))
  const [, refresh, oldAccess, lostAnswer, secondBrowser, withdrawn, signOut, refusal] = row ?? []
  return { refresh, oldAccess, lostAnswer, secondBrowser, withdrawn, signOut, refusal } as Documented
}

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
  const says = documented(heading)

  t.test(
    `at ${heading} sign-in, calls, refusal, second browser, withdrawal and sign-out go as documented`,
    async (t) => {
      const { sandbox, bff } = await connect(t, profile)
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
      t.equal(
        (await signedOut.fetch('/auth/logout', { method: 'POST' })).status,
        profile.paths.endSession ? 200 : 204,
      )
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
    const { sandbox, bff } = await connect(t, profile, { faults: { tokenLifeSeconds: 2 } })
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
    const { sandbox, bff } = await connect(t, profile)
    const browser = bff.browser()
    await signIn(browser, sandbox)
    sandbox.faults.set({ database: 'away' })
    sandbox.expireAccessTokens()
    const during = await browser.fetch('/flux/temperature')
    t.ok(during.status >= 500, String(during.status))
    sandbox.faults.set({ database: 'there' })
    await until('it goes on', async () => (await browser.fetch('/flux/temperature')).status === 200)
  })

  const variants = [
    { what: 'by default', faults: {}, env: {}, outcome: says.lostAnswer },
    ...(profile.kept === undefined ? [] : [{ what: profile.kept.setting, ...profile.kept, outcome: 'kept' }]),
  ]
  for (const { what, faults, env, outcome } of variants)
    t.test(
      `at ${heading} a session whose refresh is granted into the void is ${outcome}, ${what}`,
      async (t) => {
        const { sandbox, bff } = await connect(t, profile, { faults, env })
        const browser = bff.browser()
        await signIn(browser, sandbox)
        sandbox.faults.set({
          tokenEndpoint: { mode: 'drop', point: 'after', times: 1, only: 'refresh_token' },
        })
        sandbox.expireAccessTokens()
        let answer: Answer | null = null
        await until('an answer that is not 503', async () => {
          answer = await browser.fetch('/flux/temperature')
          return answer.status !== 503
        })
        t.equal(answer!.status === 200 ? 'kept' : 'lost', outcome, answer!.text)
      },
    )
}

/** A server with the environment that the profile advises, in front of a sandbox that answers as it does. */
async function connect(
  t: Test,
  profile: Profile,
  { faults = {}, env = {} }: { faults?: Partial<Faults>; env?: Readonly<Record<string, string>> } = {},
) {
  const port = await freePort()
  const client = { ...CLIENT, callback: `http://localhost:${port}/auth/callback` }
  const sandbox = await startSandbox(t, { profile, client, faults: { ...profile.faults, ...faults } })
  const bff = await startBff(t, sandbox, {
    ...sandbox.env,
    ...env,
    PORT: String(port),
    LOGIN_RATE_PER_MINUTE: '0',
  })
  return { sandbox, bff }
}

type Platform = Awaited<ReturnType<typeof connect>>['sandbox']

/** The access token that the resource server received last. */
function bearerOf(sandbox: Platform): string {
  const { headers } = sandbox.journal.entries({ endpoint: 'resource' }).at(-1)!
  return /^Bearer (.+)$/.exec(String(headers.authorization))?.[1] ?? ''
}

async function refusalOf(browser: Browser, sandbox: Platform): Promise<string> {
  const start = await browser.navigate('/auth/login')
  const back = await decide(sandbox, String(start.headers.location), 'refuse').catch(() => null)
  if (back === null) return 'stays at the server'
  const { headers } = await browser.navigate(back, { from: 'cross-site' })
  const error = new URL(String(headers.location), 'http://localhost').searchParams.get('login_error')
  return `\`${error}\``
}

/** When a session notices that its grant has ended at the server. */
async function endOf(browser: Browser, sandbox: Platform): Promise<string> {
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
