// oidc-provider with its development pages, for one client. Argument: { port, callback, life, rotates } as JSON.
import Provider from 'oidc-provider'

const { port, client, callback, life, rotates } = JSON.parse(process.argv[2])
const issuer = `http://127.0.0.1:${port}`
const grants = new Map()

// It warns that its keys and pages are not for production.
console.warn = () => {}
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: client.CLIENT_ID,
      client_secret: client.CLIENT_SECRET,
      redirect_uris: [callback],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'client_secret_post',
    },
  ],
  ttl: { AccessToken: life },
  features: { revocation: { enabled: true } },
  ...(rotates ? { rotateRefreshToken: true, pkce: { required: () => true } } : {}),
})
provider.on('access_token.saved', ({ accountId, grantId }) => {
  const known = grants.get(accountId) ?? new Set()
  grants.set(accountId, known.add(grantId))
})
// What an administrator does.
provider.use(async (ctx, next) => {
  const account = /^\/withdraw\/(\w+)$/.exec(ctx.path)?.[1]
  if (account === undefined) return next()
  for (const id of grants.get(account) ?? []) await (await provider.Grant.find(id))?.destroy()
  ctx.status = 204
})
provider.listen(port, '127.0.0.1', () => console.log('listening'))
