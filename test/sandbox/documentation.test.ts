import t from 'tap'
import { createSandbox, type Sandbox } from '../../src/sandbox/sandbox.ts'
import { codeBlock } from '../helpers/documentation.ts'
import { authorizeUrl, CLIENT, locationOf, refresh, startSandbox } from './started.ts'

const printed = (heading: string, language: string) => codeBlock('docs/sandbox.md', heading, language)

/** Sends what a printed curl command sends; `target` replaces the address where the page has gaps. */
async function curl(sandbox: Sandbox, command: string, target?: string): Promise<Response> {
  const type = /-H 'content-type: ([^']+)'/.exec(command)?.[1] ?? 'application/x-www-form-urlencoded'
  const data = [...command.matchAll(/-d (?:'([^']*)'|(\S+))/g)].map(([, quoted, plain]) => quoted ?? plain)
  const path = /http:\/\/127\.0\.0\.1:4000(\/[^\s?']*)/.exec(command)?.[1]
  const url = target ?? `${sandbox.authUrl}${path}`
  const headers = { 'content-type': type }
  return await fetch(url, { method: 'POST', headers, body: data.join('&'), redirect: 'manual' })
}

/** Runs printed code with these names. */
async function run(code: string, names: Record<string, unknown>): Promise<void> {
  const AsyncFunction = (async () => {}).constructor as new (
    ...texts: string[]
  ) => (...values: unknown[]) => Promise<void>
  await new AsyncFunction(...Object.keys(names), code)(...Object.values(names))
}

t.test('the printed commands sign in without a browser, and make one token request fail', async (t) => {
  const sandbox = await startSandbox(t)
  const signIn = printed('Sign in without a browser', 'sh')
  const accepted = await curl(sandbox, signIn, authorizeUrl(sandbox))
  t.match(locationOf(accepted).searchParams.get('code'), /./)

  t.equal((await curl(sandbox, printed('Make it fail', 'sh'))).status, 200)
  const { refresh_token } = sandbox.issueTokens('alice')
  t.equal((await refresh(sandbox, refresh_token)).status, 503)
  t.equal((await refresh(sandbox, refresh_token)).status, 200)
})

t.test('the printed code starts a sandbox and holds a refresh until the logout is done', async (t) => {
  const sandbox = await startSandbox(t)
  const { refresh_token } = sandbox.issueTokens('alice')
  const order: string[] = []
  let refreshed: Promise<unknown> = Promise.resolve()
  await run(printed('Gates', 'ts'), {
    sandbox,
    refresh: () => {
      refreshed = refresh(sandbox, refresh_token).then(() => order.push('refresh'))
      return refreshed
    },
    logout: async () => order.push('logout'),
  })
  await refreshed
  t.strictSame(order, ['logout', 'refresh'])

  await t.test('in process', async (t) => {
    await run(printed('In process', 'ts'), { createSandbox, t, ...CLIENT })
  })
})
