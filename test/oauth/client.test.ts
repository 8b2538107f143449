import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import t from 'tap'
import { Secret } from '../../src/secret.ts'
import type { Teardown } from '../helpers/child.ts'
import { freePort } from '../helpers/ports.ts'
import { turns, unlessHeldUp, until, watchLateness } from '../helpers/wait.ts'
import { bounds, clientOf, http, rawTokenEndpoint } from './raw-token-endpoint.ts'

const TOKEN = new Secret('the refresh token+&=')
const GOOD = { access_token: 'at', token_type: 'bearer', expires_in: 3600, refresh_token: 'rt', scope: 's' }

async function refreshAt(t: Teardown, answer: (socket: Socket, request: string) => void) {
  const { url, requests } = await rawTokenEndpoint(t, answer)
  return { outcome: await clientOf(t, url).refresh(TOKEN, bounds(60_000)), requests }
}

t.test('a refresh is one POST of the documented fields with the credentials in the form', async (t) => {
  const { outcome, requests } = await refreshAt(t, (socket) =>
    socket.write(http('200 OK', JSON.stringify(GOOD))),
  )
  t.equal(outcome.kind, 'granted')
  t.equal(requests.length, 1)
  const [head = '', body = ''] = requests[0]!.split('\r\n\r\n')
  t.match(head, /^POST \/oauth\/token HTTP\/1\.1\r\n/)
  t.match(head, /content-type: application\/x-www-form-urlencoded/i)
  t.notMatch(head, /authorization:/i)
  t.match(head, /\r\naccept-encoding: identity(\r\n|$)/i, 'what comes is not decoded')
  t.strictSame(Object.fromEntries(new URLSearchParams(body)), {
    grant_type: 'refresh_token',
    refresh_token: 'the refresh token+&=',
    client_id: 'the-client',
    client_secret: 'a secret+/&=',
  })
})

t.test('a response is parsed once', async (t) => {
  const { parse } = JSON
  let count = 0
  JSON.parse = (text, ...more) => {
    if (String(text).includes('parsed once')) count += 1
    return parse(text, ...more)
  }
  t.teardown(() => Object.assign(JSON, { parse }))
  const { outcome } = await refreshAt(t, (socket) =>
    socket.write(http('200 OK', JSON.stringify({ ...GOOD, scope: 'parsed once' }))),
  )
  t.match(outcome, { kind: 'granted', tokens: { scope: 'parsed once' } })
  t.equal(count, 1)
})

const UNAVAILABLE = { kind: 'unavailable' }
/** The failure may concern every user's grant. */
const OF_ALL = { ...UNAVAILABLE, ofThisGrant: false }
const DOUBT = { kind: 'in_doubt' }
const REFUSED = { kind: 'refused' }
const CHALLENGE = 'WWW-Authenticate: Basic realm="x"'

const empty = (status: string, ...headers: string[]) => http(status, '', headers)
const text = (status: string, body: string, type = 'application/json') =>
  http(status, body, [`Content-Type: ${type}`])
const error = (status: string, code: unknown, ...headers: string[]) =>
  http(status, JSON.stringify({ error: code }), ['Content-Type: application/json', ...headers])
const granted = (change: object) => http('200 OK', JSON.stringify({ ...GOOD, ...change }))

/** A response of the token endpoint, and the outcome that the client reports. */
const RESPONSES: [what: string, response: string, expected: object][] = [
  ['429 with seconds', empty('429 Too Many', 'Retry-After: 7'), { ...UNAVAILABLE, retryAfterSeconds: 7 }],
  ['429 with too many seconds', empty('429 Too Many', 'Retry-After: 86400'), { retryAfterSeconds: 60 }],
  ['429 with nonsense', empty('429 Too Many', 'Retry-After: soon'), { retryAfterSeconds: null }],
  ['429', error('429 Slow', 'access_denied'), { ...OF_ALL, rejectsClient: false }],
  ['500', text('500 Oh', 'x'), { ...DOUBT, failedStatus: 500 }],
  ['500 with Retry-After', empty('500 Oh', 'Retry-After: 3'), DOUBT],
  ['500 with an error code', error('500 Oh', 'server_error'), DOUBT],
  ['503', http('503 Oh', '{}', ['Retry-After: 3']), { ...UNAVAILABLE, retryAfterSeconds: 3 }],
  ['503 with 0', empty('503 Oh', 'Retry-After: 0'), { ...UNAVAILABLE, retryAfterSeconds: null }],
  ['503 with nonsense', empty('503 Oh', 'Retry-After: soon'), DOUBT],
  ['503 with a negative number', empty('503 Oh', 'Retry-After: -1'), DOUBT],
  ['503 without Retry-After', text('503 Oh', 'no healthy upstream'), { ...DOUBT, failedStatus: 503 }],
  ['503 with an error code', error('503 Oh', 'temporarily_unavailable'), DOUBT],
  ['503 with both', error('503 Oh', 'server_error', 'Retry-After: 3'), { ...OF_ALL, retryAfterSeconds: 3 }],
  ['503 with a challenge', empty('503 Oh', CHALLENGE), { ...DOUBT, failedStatus: 503 }],
  ['503 with more than 64 KiB', text('503 Oh', 'x'.repeat(70_000)), { ...DOUBT, failedStatus: 503 }],
  ['520', empty('520 Oh'), DOUBT],
  [
    '302',
    empty('302 Found', 'Location: https://sso.example/login;jsessionid=1?a=b'),
    { ...DOUBT, reason: 'the response was 302 to /login', answer: { status: 302 } },
  ],
  ['301 with tokens', http('301 Moved', JSON.stringify(GOOD)), DOUBT],
  ['404', text('404 Not Found', 'x', 'text/html'), { ...OF_ALL, answer: { isEmpty: false, code: null } }],
  ['400 without a body', empty('400 Bad'), { ...OF_ALL, answer: { status: 400, isEmpty: true } }],
  ['400 with half of an error', text('400 Bad', '{"error":"invalid_gra'), UNAVAILABLE],
  ['201 with tokens', text('201 Created', JSON.stringify(GOOD)), DOUBT],
  ['204', 'HTTP/1.1 204 No Content\r\n\r\n', DOUBT],
  ['200 with a web page', text('200 OK', '<html>', 'text/html'), DOUBT],
  ['200 with nothing', text('200 OK', ''), { ...DOUBT, answer: { status: 200, isEmpty: true } }],
  ['200 with half of the tokens', text('200 OK', '{"access_token":"at"'), DOUBT],
  ['200 with a list', text('200 OK', '[]'), DOUBT],
  ['200 without an access token', text('200 OK', '{"token_type":"bearer"}'), DOUBT],
  [
    '200 with more than 64 KiB',
    text('200 OK', `{"a":"${'x'.repeat(70_000)}"}`),
    { ...DOUBT, reason: /larger than 65536 bytes/ },
  ],
  ['what is not HTTP', 'SSH-2.0-OpenSSH_9.2\r\n', DOUBT],
  ['invalid_grant with 400', error('400 Bad', 'invalid_grant'), { ...REFUSED, reason: 'invalid_grant' }],
  ['invalid_grant with 401', error('401 No', 'invalid_grant'), REFUSED],
  ['invalid_grant with a challenge', error('401 No', 'invalid_grant', CHALLENGE), REFUSED],
  ['invalid_grant as text', text('400 Bad', '{"error":"invalid_grant"}', 'text/plain'), REFUSED],
  ['invalid_grant after a byte order mark', text('400 Bad', '\ufeff{"error":"invalid_grant"}'), REFUSED],
  ['invalid_grant with 403', error('403 No', 'invalid_grant'), REFUSED],
  ['invalid_grant with 418', error('418 Pot', 'invalid_grant'), REFUSED],
  ['invalid_grant with 429', error('429 Slow', 'invalid_grant'), OF_ALL],
  ['invalid_grant with 503', error('503 No', 'invalid_grant'), DOUBT],
  [
    'invalid_grant with 200',
    error('200 OK', 'invalid_grant'),
    {
      ...DOUBT,
      reason: 'the response was 200 invalid_grant',
      answer: { status: 200, code: 'invalid_grant' },
    },
  ],
  [
    'invalid_client with 401',
    error('401 No', 'invalid_client'),
    {
      ...UNAVAILABLE,
      rejectsClient: true,
      reason: 'the response was 401 invalid_client: check CLIENT_ID, CLIENT_SECRET and OAUTH_CLIENT_AUTH',
    },
  ],
  ['invalid_client, challenge', error('401 No', 'invalid_client', CHALLENGE), { reason: /invalid_client/ }],
  [
    'a bare challenge',
    empty('401 No', CHALLENGE),
    { ...OF_ALL, rejectsClient: false, reason: /^the response was 401: check CLIENT_ID/ },
  ],
  [
    'another code with 401',
    error('401 No', 'not_allowed'),
    { ...OF_ALL, rejectsClient: false, reason: 'the response was 401 not_allowed' },
  ],
  ['unauthorized_client', error('400 Bad', 'unauthorized_client'), { ...OF_ALL, rejectsClient: true }],
  ['access_denied', error('400 Bad', 'access_denied'), { ...UNAVAILABLE, ofThisGrant: true }],
  ['invalid_scope', error('400 No', 'invalid_scope'), { ...REFUSED, reason: 'invalid_scope' }],
  ['invalid_scope with 403', error('403 No', 'invalid_scope'), REFUSED],
  ['a code of the server with 404', error('404 No', 'not_allowed'), { ...UNAVAILABLE, ofThisGrant: true }],
  ['the words of a framework for a missing page', error('404 No', 'Not Found'), OF_ALL],
  ['the words of a framework for a bad request', error('400 Bad', 'Bad Request'), OF_ALL],
  ['server_error with 400', error('400 Bad', 'server_error'), OF_ALL],
  ['temporarily_unavailable', error('400 Bad', 'temporarily_unavailable'), OF_ALL],
  ['an error code of another type', error('400 Bad', { invalid_grant: 1 }), UNAVAILABLE],
  ['an empty error code', error('400 Bad', ''), UNAVAILABLE],
  ['an unprintable error code', error('400 Bad', '\u001b[2J'), { reason: /unreadable error code/ }],
  [
    'token_type mac',
    granted({ token_type: 'mac' }),
    { ...DOUBT, reason: /200 with a token that is no bearer/ },
  ],
  ['token_type DPoP', granted({ token_type: 'DPoP' }), DOUBT],
  ['an access token outside ASCII', granted({ access_token: 'ä' }), DOUBT],
  ['an access token with a line break', granted({ access_token: 'a\r\nb' }), DOUBT],
  ['an empty access token', granted({ access_token: '' }), DOUBT],
]

t.test('each response of the token endpoint has its outcome, which names no token', async (t) => {
  for (const [what, response, expected] of RESPONSES) {
    const { outcome } = await refreshAt(t, (socket) => socket.write(response))
    t.match(outcome, expected, what)
    t.notMatch(JSON.stringify(outcome), /refresh token\+/, what)
  }
})

t.test('a 401 to anything but a refresh rejects the client, whatever its code', async (t) => {
  for (const response of [empty('401 No', CHALLENGE), error('401 No', 'not_allowed')]) {
    const { url } = await rawTokenEndpoint(t, (socket) => socket.write(response))
    const client = clientOf(t, url)
    const redeemed = await client.redeemCode({ redirectUri: url, code: 'c', verifier: null })
    t.match(redeemed, { ...OF_ALL, rejectsClient: true, reason: /check CLIENT_ID/ })
  }
})

t.test('OAUTH_REFUSED_GRANT says which further answers to a refresh are refusals', async (t) => {
  const env = { OAUTH_REFUSED_GRANT: '400:empty,404:empty,400:invalid_request' }
  const cut = 'HTTP/1.1 400 Bad\r\nContent-Length: 9\r\n\r\n'
  const shapes: [response: string, expected: object][] = [
    [empty('400 Bad'), { ...REFUSED, reason: 'the response was 400' }],
    [http('400 Bad', ' '), UNAVAILABLE],
    [cut, UNAVAILABLE],
    [empty('404 None'), REFUSED],
    [empty('403 No'), UNAVAILABLE],
    [error('400 Bad', 'invalid_request'), { ...REFUSED, reason: 'invalid_request' }],
    [error('401 No', 'invalid_request'), UNAVAILABLE],
    [error('400 Bad', 'invalid_requests'), UNAVAILABLE],
    [error('500 Oh', 'invalid_request'), DOUBT],
    [error('400 Bad', 'invalid_grant'), REFUSED],
  ]
  for (const [response, expected] of shapes) {
    const { url } = await rawTokenEndpoint(
      t,
      (socket) => void socket.write(response, () => response === cut && socket.end()),
    )
    const client = clientOf(t, url, env)
    t.match(await client.refresh(TOKEN, bounds(60_000)), expected, response)
    const redeemed = await client.redeemCode({ redirectUri: url, code: 'c', verifier: null })
    t.equal(redeemed.kind === 'refused', /invalid_grant/.test(response), 'a code has no such shapes')
  }
})

t.test('invalid_client after a grant says until when the client was accepted', async (t) => {
  const answers = [http('200 OK', JSON.stringify(GOOD)), error('401 No', 'invalid_client')]
  const { url } = await rawTokenEndpoint(t, (socket) => socket.write(answers.shift() ?? ''))
  const client = clientOf(t, url)
  t.match(await client.refresh(TOKEN, bounds(60_000)), { kind: 'granted' })
  t.match(await client.refresh(TOKEN, bounds(60_000)), {
    rejectsClient: true,
    reason:
      /^the response was 401 invalid_client \(the server may be unable .* until 1970-01-01T00:16:40.000Z\)$/,
  })
})

t.test(
  'with OAUTH_CLIENT_AUTH=basic the secret goes by HTTP Basic to both endpoints, form-encoded',
  async (t) => {
    const { url, requests } = await rawTokenEndpoint(t, (socket) =>
      socket.write(
        http(
          '400 No',
          JSON.stringify({
            error: 'x',
            error_description: 'not a secret+/&= dGhlJTJEY2xpZW50OmErc2VjcmV0JTJCJTJGJTI2JTNE',
          }),
        ),
      ),
    )
    const client = clientOf(t, url, { OAUTH_CLIENT_AUTH: 'basic' })
    const outcome = await client.refresh(TOKEN, bounds(60_000))
    t.match(outcome, { kind: 'unavailable', answer: { description: 'not *** ***' } })
    await client.revoke(TOKEN, 'refresh_token')
    await client.redeemCode({ redirectUri: url, code: 'c', verifier: null })
    await client.redeemClient()
    t.equal(requests.length, 4)
    for (const request of requests) {
      const [, credentials = ''] = /^authorization: Basic (\S+)\r$/im.exec(request) ?? []
      t.equal(Buffer.from(credentials, 'base64').toString(), 'the%2Dclient:a+secret%2B%2F%26%3D')
      t.notMatch(request, /client_secret|client_id/)
    }
  },
)

t.test('addresses are kept to the letter, with queries of their own', async (t) => {
  const { url, requests } = await rawTokenEndpoint(t, (socket) => socket.write(error('400 Bad', 'x')))
  const client = clientOf(t, url, {
    OAUTH_AUTHORIZE_URL: `${url}/o/authorize/?tenant=a%20b`,
    OAUTH_TOKEN_URL: `${url}/o/token/?tenant=a%20b&v=`,
    OAUTH_REVOCATION_URL: `${url}/o/revoke_token/`,
    OAUTH_AUTHORIZE_PARAMS:
      'prompt=consent&audience=https%3A%2F%2Fapi.example&nonce={random}&other=%7Brandom%7D&empty=',
  })
  await client.refresh(TOKEN, bounds(60_000))
  await client.revoke(TOKEN, 'refresh_token')
  t.match(requests[0], /^POST \/o\/token\/\?tenant=a%20b&v= HTTP/)
  t.match(requests[1], /^POST \/o\/revoke_token\/ HTTP/)
  const request = {
    responseType: 'code',
    redirectUri: 'http://localhost:1/x',
    state: 's',
    verifier: null,
  } as const
  const [one, two] = [client.authorizeUrl(request), client.authorizeUrl(request)]
  t.ok(one.startsWith(`${url}/o/authorize/?tenant=a%20b&`))
  const { nonce = '', other = '', ...sent } = Object.fromEntries(new URL(one).searchParams)
  t.strictSame(sent, {
    tenant: 'a b',
    client_id: 'the-client',
    response_type: 'code',
    redirect_uri: 'http://localhost:1/x',
    scope: url,
    state: 's',
    prompt: 'consent',
    audience: 'https://api.example',
    empty: '',
  })
  for (const random of [nonce, other]) t.match(random, /^[A-Za-z0-9_-]{22}$/, '128 bits')
  t.not(nonce, other)
  t.not(new URL(two).searchParams.get('nonce'), nonce, 'fresh for each sign-in')
})

t.test('the description of an error is at most 200 characters of ASCII without a secret', async (t) => {
  const [secret, token] = ['a secret+/&=', 'the refresh token+&=']
  const base64 = Buffer.from(`the-client:${secret}`).toString('base64')
  const parts = [secret, encodeURIComponent(secret), token, new URLSearchParams({ token }).toString(), base64]
  const description = `not ${parts.join(' | ')}: \u001b[2J\n ünknown ${'x'.repeat(300)}`
  const body = JSON.stringify({ error: 'invalid_grant', error_description: description })
  const { outcome } = await refreshAt(t, (socket) => socket.write(http('400 Bad', body)))
  const said = outcome.kind === 'refused' ? (outcome.answer?.description ?? '') : ''
  t.match(said, /^not \*\*\* \| \*\*\* \| \*\*\* \| token=\*\*\* \| \S*\*\*\*\S*: \?\[2J \?nknown x+$/)
  t.equal(said.length, 200)
  for (const odd of [undefined, null, '', 7, ['x'], {}]) {
    const text = JSON.stringify({ error: 'invalid_request', error_description: odd })
    const { outcome: plain } = await refreshAt(t, (socket) => socket.write(http('400 Bad', text)))
    t.match(plain, { answer: { description: null } })
  }
})

t.test('a redirect of the token endpoint is not followed', async (t) => {
  for (const status of ['301', '302', '303', '307', '308']) {
    const target = await rawTokenEndpoint(t, (socket) => socket.write(http('200 OK', JSON.stringify(GOOD))))
    const { outcome, requests } = await refreshAt(t, (socket) =>
      socket.write(empty(`${status} Elsewhere`, `Location: ${target.url}/oauth/token`)),
    )
    t.match(outcome, { ...DOUBT, reason: `the response was ${status} to /oauth/token` })
    t.equal(requests.length, 1)
    t.equal(target.requests.length, 0, 'the secret and the token went nowhere else')
  }
})

t.test('a token response that ends too early, at any length, is a doubt', async (t) => {
  const whole = http('200 OK', JSON.stringify(GOOD))
  let length = 0
  const { url } = await rawTokenEndpoint(t, (socket) => void socket.end(whole.slice(0, length)))
  const client = clientOf(t, url)
  for (; length < whole.length; length += 1)
    t.match(await client.refresh(TOKEN, bounds(60_000)), DOUBT, `${length} bytes`)
  t.match(await client.refresh(TOKEN, bounds(60_000)), { kind: 'granted' }, 'the whole')
})

t.test('a token response with a body of any length below the whole is a doubt', async (t) => {
  const whole = JSON.stringify(GOOD)
  let length = 0
  const { url } = await rawTokenEndpoint(t, (socket) => socket.write(http('200 OK', whole.slice(0, length))))
  const client = clientOf(t, url)
  for (; length < whole.length; length += 1)
    t.match(await client.refresh(TOKEN, bounds(60_000)), DOUBT, `${length} bytes`)
})

t.test('a response that does not end, or does not come, leaves a doubt after its timeout', async (t) => {
  for (const [status, expected] of [
    ['200 OK', { timedOut: true }],
    ['503 Oh', { failedStatus: 503 }],
    [null, { timedOut: true }],
  ] as const) {
    const timeout = new AbortController()
    const head = status === null ? '' : `HTTP/1.1 ${status}\r\nContent-Length: 99\r\n\r\n{`
    const { url } = await rawTokenEndpoint(t, async (socket) => {
      socket.write(head)
      await turns()
      timeout.abort(new DOMException('too late', 'TimeoutError'))
    })
    const outcome = await clientOf(t, url).refresh(TOKEN, { ...bounds(60_000), signal: timeout.signal })
    t.match(outcome, { ...DOUBT, ...expected })
  }
})

t.test('Retry-After may be a date', async (t) => {
  const at = Date.now() + 50_000
  const date = new Date(at).toUTCString()
  const { outcome } = await refreshAt(t, (socket) => socket.write(empty('503 Oh', `Retry-After: ${date}`)))
  const seconds = outcome.kind === 'unavailable' ? outcome.retryAfterSeconds! : 0
  // The date has whole seconds.
  t.ok(seconds <= 50 && seconds > (at - Date.now()) / 1_000 - 2, `${seconds} s`)
})

t.test('a request to a host that refuses it or is not known counts as not sent', async (t) => {
  for (const [url, timedOut, reason] of [
    [`http://127.0.0.1:${await freePort()}`, false, /^the request was not sent \(ECONNREFUSED\)$/],
    ['http://nobody.invalid', Boolean, /was not sent \((ENOTFOUND|EAI_AGAIN)\)/],
  ] as const) {
    const client = clientOf(t, url, { ALLOW_INSECURE_HTTP: 'true' })
    t.match(await client.refresh(TOKEN, bounds(600_000)), { kind: 'unavailable', timedOut, reason }, url)
  }
})

t.test('a connection that fails after the request was written leaves a doubt', async (t) => {
  for (const fail of [
    (socket: Socket) => socket.resetAndDestroy(),
    (socket: Socket) => socket.end(),
    (socket: Socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"acc'),
  ])
    t.match((await refreshAt(t, fail)).outcome, { kind: 'in_doubt', timedOut: false })
})

t.test('a connection is reused only soon after its response, whatever the server offers', async (t) => {
  const sockets = new Set<Socket>()
  const { url } = await rawTokenEndpoint(t, (socket) => {
    sockets.add(socket)
    socket.write(
      http('200 OK', JSON.stringify(GOOD), ['Content-Type: application/json', 'Keep-Alive: timeout=75']),
    )
  })
  const client = clientOf(t, url)
  t.match(await client.refresh(TOKEN, bounds(60_000)), { kind: 'granted' })
  const endWatch = watchLateness()
  const kept = await until('the client closes it', () => [...sockets].every(({ closed }) => closed))
  t.ok(kept - endWatch().lateMs < 2_500, `after ${kept} ms`)
  t.match(await client.refresh(TOKEN, bounds(60_000)), { kind: 'granted' })
  t.equal(sockets.size, 2)
})

t.test(
  'a connection carries no request after the first one that comes a minute after its begin',
  async (t) => {
    // One that is held up finds an idle connection ended.
    await unlessHeldUp(300, async () => {
      const sockets = new Set<Socket>()
      const { url, requests } = await rawTokenEndpoint(t, (socket) => {
        sockets.add(socket)
        socket.write(http('200 OK', JSON.stringify(GOOD)))
      })
      let ahead = 0
      const client = clientOf(t, url, {}, () => performance.now() + ahead)
      for (const ms of [0, 59_000, 61_000, 61_000]) {
        ahead = ms
        t.match(await client.refresh(TOKEN, bounds(600_000)), { kind: 'granted' })
      }
      const isLast = requests.map((request) => /^connection: close\r$/im.test(request))
      assert.deepEqual([isLast, sockets.size], [[false, false, true, false], 2])
    })
  },
)

t.test('no connection is reused where the server ends one right after its response', async (t) => {
  let isEnded: Promise<unknown> = Promise.resolve()
  const { url, requests } = await rawTokenEndpoint(t, (socket) => {
    isEnded = once(socket, 'close')
    socket.end(http('200 OK', JSON.stringify(GOOD)))
  })
  const client = clientOf(t, url)
  for (let request = 0; request < 3; request += 1) {
    t.match(await client.refresh(TOKEN, bounds(60_000)), { kind: 'granted' })
    await isEnded
  }
  const isLast = requests.map((request) => /^connection: close\r$/im.test(request))
  t.strictSame(isLast, [false, true, true])
})

t.test('TOKEN_TIMEOUT_MS may be any whole number', async (t) => {
  const { url } = await rawTokenEndpoint(t, (socket) => socket.write(http('200 OK', JSON.stringify(GOOD))))
  // As seconds these have no exact binary form, so they do not become the same milliseconds again.
  for (const timeout of ['32005', '32010', '32020', '32767']) {
    const client = clientOf(t, url, { TOKEN_TIMEOUT_MS: timeout })
    t.match(await client.redeemClient(), { kind: 'granted' }, timeout)
  }
})

t.test('a request that got no connection in time is never sent', async (t) => {
  const { url, requests } = await rawTokenEndpoint(t, () => {})
  const client = clientOf(t, url)
  // As many as the client may have connections.
  const stops = Array.from({ length: 66 }, () => new AbortController())
  const { sendBefore } = bounds(600_000)
  const hanging = stops.map(({ signal }) => client.refresh(TOKEN, { sendBefore, signal }))
  await until('each has its connection', async () => requests.length === 66)
  const outcome = await client.refresh(TOKEN, bounds(200, 60_000))
  t.match(outcome, { kind: 'unavailable', timedOut: true, reason: 'the request was not sent' })
  for (const stop of stops) stop.abort()
  await Promise.all(hanging)
  await turns()
  t.equal(requests.length, 66)
})

t.test('sign-ins and refreshes have connections of their own', async (t) => {
  const held: Socket[] = []
  let isHeld: (request: string) => boolean
  let arrived: () => void
  const { url } = await rawTokenEndpoint(t, (socket, request) => {
    if (!isHeld(request)) return void socket.write(http('200 OK', JSON.stringify(GOOD)))
    held.push(socket)
    arrived()
  })
  const client = clientOf(t, url)
  const signIn = () => client.redeemCode({ redirectUri: 'http://localhost:1/', code: 'c', verifier: null })
  const refresh = () => client.refresh(TOKEN, bounds(600_000))
  for (const [what, many, one, connections] of [
    [/grant_type=authorization_code/, signIn, refresh, 32],
    [/grant_type=refresh_token/, refresh, signIn, 66],
  ] as const) {
    isHeld = (request) => what.test(request)
    const all = new Promise<void>((resolve) => {
      arrived = () => held.length === connections && resolve()
    })
    const waiting = Array.from({ length: 70 }, many)
    await all
    t.match(await one(), { kind: 'granted' }, `not behind ${what.source}`)
    t.equal(held.length, connections)
    isHeld = () => false
    for (const socket of held.splice(0)) socket.write(http('200 OK', JSON.stringify(GOOD)))
    await Promise.all(waiting)
  }
})

t.test('an abandoned request is reset, and nothing more of it is delivered', async (t) => {
  const { url, requests } = await rawTokenEndpoint(t, (socket) => {
    socket.on('error', (error: NodeJS.ErrnoException) => codes.push(error.code))
  })
  const codes: (string | undefined)[] = []
  const connection = new AbortController()
  const answer = clientOf(t, url).refresh(TOKEN, { ...bounds(60_000), signal: connection.signal })
  await until('the request', () => requests.length > 0)
  connection.abort(new Error('given up'))
  t.match(await answer, { kind: 'in_doubt' })
  await until('the end of its connection', () => codes.length > 0)
  t.strictSame(codes, ['ECONNRESET'], 'a reset and no orderly close')
})

t.test('a process that was stalled while it connected sends nothing afterwards', async (t) => {
  const { url, requests } = await rawTokenEndpoint(t, (socket) =>
    socket.write(http('200 OK', JSON.stringify(GOOD))),
  )
  const client = clientOf(t, url)
  const answer = client.refresh(TOKEN, bounds(100, 60_000))
  // This loop stalls the process: the connection is made, and the process does not see it.
  await new Promise<void>((resolve) => process.nextTick(resolve))
  const goesOnAt = performance.now() + 200
  while (performance.now() < goesOnAt);
  t.match(await answer, { kind: 'unavailable', timedOut: true, reason: 'the request was not sent' })
  await turns()
  t.equal(requests.length, 0)
})

t.test('an abandoned response that ends with its connection raises no error', async (t) => {
  const unhandled: unknown[] = []
  const note = (fault: unknown): void => void unhandled.push(fault)
  process.on('uncaughtException', note)
  t.teardown(() => process.off('uncaughtException', note))
  const abandoned = new AbortController()
  const { url } = await rawTokenEndpoint(t, async (socket, request) => {
    const isLong = request.includes('long')
    socket.write(`HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n${isLong ? 'x'.repeat(70_000) : ''}`)
    await turns()
    if (!isLong) abandoned.abort(new Error('given up'))
  })
  const client = clientOf(t, url)
  for (const token of ['long', 'silent']) {
    const outcome = await client.refresh(new Secret(token), { ...bounds(60_000), signal: abandoned.signal })
    t.match(outcome, { kind: 'in_doubt' }, token)
    await turns()
  }
  t.strictSame(unhandled, [])
})

/** `expires_in` of any type, and the life of the token in seconds. */
const LIVES: [seconds: number, ...given: unknown[]][] = [
  [3_600, undefined, null, 3_600, '3600'],
  [1, 1, 1.9],
  [0, 0.5, 0, '0', -5, '-5', '', 'soon', '1e3', true, {}, []],
  [86_400, 86_400, 86_401, '99999999999999999999', 1e300],
]

t.test('odd or absent optional members do not lose the tokens', async (t) => {
  const grant = async (body: object, mark = '') => {
    const response = text('200 OK', mark + JSON.stringify(body), 'text/html')
    const { outcome } = await refreshAt(t, (socket) => socket.write(response))
    if (outcome.kind !== 'granted') throw new Error(outcome.reason)
    const { accessToken, refreshToken, ...tokens } = outcome.tokens
    return { ...tokens, revealed: [accessToken.reveal(), refreshToken?.reveal()] }
  }
  const odd = { token_type: 'Bearer', expires_in: '1800', scope: ['s'], id_token: 'garbage', callback: 5 }
  const expected = { lifeSeconds: 1_800, expiresAt: 2_800_000, scope: null, revealed: ['at', 'rt'] }
  t.match(await grant({ ...GOOD, ...odd }), expected)
  t.match(await grant({ ...GOOD, ...odd }, '\ufeff'), expected, 'after a byte order mark')
  for (const refresh_token of [undefined, null, '', 7])
    t.match(await grant({ access_token: 'at', refresh_token }), { revealed: ['at', undefined] })
  for (const [lifeSeconds, ...all] of LIVES)
    for (const expires_in of all)
      t.match(await grant({ ...GOOD, expires_in }), { lifeSeconds }, `expires_in ${expires_in}`)
})

t.test('the end of the refresh token is kept where the response names it', async (t) => {
  const endOf = async (change: object) => {
    const { outcome } = await refreshAt(t, (socket) => socket.write(granted(change)))
    return outcome.kind === 'granted' ? outcome.tokens.refreshExpiresAt : outcome.reason
  }
  for (const name of ['refresh_expires_in', 'refresh_token_expires_in']) {
    for (const seconds of [1_800, '1800'])
      t.equal(await endOf({ [name]: seconds }), 2_800_000, `${name} ${seconds}`)
    t.equal(await endOf({ [name]: 0.5 }), 1_000_500, 'below a second')
    t.equal(await endOf({ [name]: 1e300 }), 31_537_000_000, 'at most a year')
    for (const none of [undefined, null, 0, '0', -1, '-1', '', 'soon', '1e3', true, [], {}])
      t.equal(await endOf({ [name]: none }), null, `${name} ${JSON.stringify(none)}`)
  }
  t.equal(await endOf({ refresh_expires_in: 60, refresh_token_expires_in: 30 }), 1_030_000, 'the earlier one')
  t.equal(await endOf({ refresh_expires_in: 0, refresh_token_expires_in: 30 }), 1_030_000)
})

t.test('a revocation returns null, or why it failed and whether it would fail again', async (t) => {
  const cases: [response: string, expected: object | null][] = [
    [text('200 OK', ''), null],
    [text('200 OK', '{"error":"invalid_token"}'), null],
    ['HTTP/1.1 204 None\r\n\r\n', null],
    [text('503 Oh', ''), { reason: 'the response was 503', isDefinite: false }],
    [http('503 Oh', '', ['Retry-After: 1']), { isDefinite: false }],
    [empty('302 Found', 'Location: /login'), { reason: 'the response was 302 to /login', isDefinite: false }],
    [empty('429 Slow'), { isDefinite: false }],
    [error('400 Bad', 'unsupported_token_type'), { reason: /unsupported_token_type/, isDefinite: true }],
    [error('401 No', 'invalid_client'), { isDefinite: true }],
    [empty('404 None'), { isDefinite: true }],
  ]
  for (const [response, expected] of cases) {
    const { url, requests } = await rawTokenEndpoint(t, (socket) => socket.write(response))
    const client = clientOf(t, url)
    const failure = await client.revoke(TOKEN, 'refresh_token')
    if (expected === null) t.equal(failure, null, response)
    else t.match(failure, expected, response)
    t.match(requests[0], /^POST \/oauth\/revoke /)
    t.match(requests[0], /token_type_hint=refresh_token/)
  }
  const { url } = await rawTokenEndpoint(t, (socket) => socket.destroy())
  t.match(await clientOf(t, url).revoke(TOKEN, 'access_token'), { isDefinite: false })
})
