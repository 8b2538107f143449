import t from 'tap'
import { runFlows } from '../helpers/servers/flows.ts'
import { startOidcProvider } from '../helpers/servers/oidc-provider.ts'

t.jobs = 2

t.test('an independent authorization server, set up as docs/servers.md has it', (t) =>
  runFlows(t, {
    profile: 'oidc-provider',
    start: (t, callback) => startOidcProvider(t, { callback }),
  }),
)

t.test('the same with one-use refresh tokens and PKCE that is required', (t) =>
  runFlows(t, {
    profile: 'oidc-provider',
    start: (t, callback) => startOidcProvider(t, { callback, rotates: true }),
    env: { OAUTH_REUSE_SECONDS: '0' },
    differs: { refresh: 'new refresh token', lostAnswer: 'lost' },
  }),
)
