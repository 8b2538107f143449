// An OpenID provider that signs in every user without a page. It has what every candidate needs
// to sign in: discovery, authorize, token, keys, userinfo.
import { createSign, generateKeyPairSync, randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'

const port = Number(process.argv[2])
const issuer = `http://127.0.0.1:${port}`
const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const jwk = { ...publicKey.export({ format: 'jwk' }), kid: 'bench', use: 'sig', alg: 'RS256' }

const discovery = {
  issuer,
  authorization_endpoint: `${issuer}/oauth/authorize`,
  token_endpoint: `${issuer}/oauth/token`,
  userinfo_endpoint: `${issuer}/userinfo`,
  jwks_uri: `${issuer}/jwks`,
  response_types_supported: ['code'],
  subject_types_supported: ['public'],
  id_token_signing_alg_values_supported: ['RS256'],
  token_endpoint_auth_methods_supported: ['client_secret_post', 'client_secret_basic'],
}

function authorize(response, query) {
  const back = new URL(query.get('redirect_uri'))
  const asked = { nonce: query.get('nonce'), client: query.get('client_id') }
  back.searchParams.set('code', Buffer.from(JSON.stringify(asked)).toString('base64url'))
  if (query.has('state')) back.searchParams.set('state', query.get('state'))
  response.writeHead(302, { location: back.href }).end()
}

function grant(form) {
  const asked = JSON.parse(Buffer.from(form.get('code'), 'base64url'))
  return {
    access_token: randomBytes(600).toString('base64url'),
    token_type: 'bearer',
    expires_in: 3_600,
    refresh_token: randomBytes(48).toString('base64url'),
    id_token: idToken(asked),
  }
}

function idToken({ nonce, client }) {
  const now = Math.floor(Date.now() / 1_000)
  const claims = { iss: issuer, sub: 'user', aud: client, iat: now, exp: now + 36_000, nonce }
  const parts = [{ alg: 'RS256', kid: 'bench' }, claims]
  const signed = parts.map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.')
  return `${signed}.${createSign('RSA-SHA256').update(signed).sign(privateKey, 'base64url')}`
}

const server = createServer(async (request, response) => {
  const url = new URL(request.url, issuer)
  const json = (value) => response.setHeader('content-type', 'application/json').end(JSON.stringify(value))
  switch (url.pathname) {
    case '/.well-known/openid-configuration':
      return json(discovery)
    case '/oauth/authorize':
      return authorize(response, url.searchParams)
    case '/oauth/token':
      return json(grant(new URLSearchParams(await text(request))))
    case '/userinfo':
      return json({ sub: 'user' })
    case '/jwks':
      return json({ keys: [jwk] })
    default:
      return response.writeHead(404).end()
  }
})

process.on('disconnect', () => process.exit(0))
server.listen(port, '127.0.0.1', () => console.log('ready'))
