import type { Socket } from 'node:net'
import t from 'tap'
import { Secret } from '../../src/secret.ts'
import type { Teardown } from '../helpers/child.ts'
import { freePort } from '../helpers/ports.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { bounds, clientOf, http, rawTokenEndpoint } from './raw-token-endpoint.ts'

const TOKEN = new Secret('the refresh token+&=')
const GOOD = { access_token: 'at', token_type: 'bearer', expires_in: 3600, refresh_token: 'rt', scope: 's' }

async function refreshAt(t: Teardown, answer: (socket: Socket, request: string) => void) {
  const { url, requests } = await rawTokenEndpoint(t, answer)
  return { outcome: await clientOf(t, url).refresh(TOKEN, bounds(300)), requests }
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

/** A response of the token endpoint, and the outcome that the client reports. */
const RESPONSES: [what: string, response: string, expected: object][] = [
  [
    '429 with seconds',
    http('429 Too Many', '', ['Retry-After: 7']),
    { kind: 'unavailable', retryAfterSeconds: 7 },
  ],
  ['429 with too many seconds', http('429 Too Many', '', ['Retry-After: 86400']), { retryAfterSeconds: 60 }],
  [
    '429 with 0',
    http('429 Too Many', '', ['Retry-After: 0']),
    { kind: 'unavailable', retryAfterSeconds: null },
  ],
  ['429 with nonsense', http('429 Too Many', '', ['Retry-After: soon']), { retryAfterSeconds: null }],
  ['500', http('500 Oh', 'x'), { kind: 'in_doubt', failedStatus: 500 }],
  ['500 with Retry-After', http('500 Oh', 'x', ['Retry-After: 3']), { kind: 'in_doubt' }],
  ['501', http('501 Oh', 'x'), { kind: 'in_doubt', failedStatus: 501 }],
  ['502', http('502 Oh', '<html>', ['Content-Type: text/html']), { kind: 'in_doubt' }],
  ['503', http('503 Oh', '{}', ['Retry-After: 3']), { kind: 'unavailable', retryAfterSeconds: 3 }],
  [
    '503 with a date',
    http('503 Oh', '', ['Retry-After: Fri, 01 Jan 2100 00:00:00 GMT']),
    { kind: 'unavailable', retryAfterSeconds: 60 },
  ],
  ['503 with 0', http('503 Oh', '', ['Retry-After: 0']), { kind: 'unavailable', retryAfterSeconds: null }],
  ['503 with nonsense', http('503 Oh', '', ['Retry-After: soon']), { kind: 'in_doubt' }],
  ['503 with a negative number', http('503 Oh', '', ['Retry-After: -1']), { kind: 'in_doubt' }],
  ['503 without Retry-After', http('503 Oh', 'no healthy upstream'), { kind: 'in_doubt', failedStatus: 503 }],
  ['503 with an error code', http('503 Oh', '{"error":"temporarily_unavailable"}'), { kind: 'in_doubt' }],
  [
    '503 with an error code and Retry-After',
    http('503 Oh', '{"error":"temporarily_unavailable"}', ['Retry-After: 3']),
    { kind: 'unavailable', retryAfterSeconds: 3, ofThisGrant: false },
  ],
  ['500 with an error code', http('500 Oh', '{"error":"server_error"}'), { kind: 'in_doubt' }],
  [
    '503 with a challenge',
    http('503 Oh', '', ['WWW-Authenticate: Basic realm="x"']),
    { kind: 'in_doubt', failedStatus: 503 },
  ],
  ['504', http('504 Oh', ''), { kind: 'in_doubt' }],
  ['520', http('520 Oh', ''), { kind: 'in_doubt' }],
  ['302', http('302 Found', '', ['Location: /login']), { kind: 'unavailable' }],
  ['404', http('404 Not Found', 'x', ['Content-Type: text/html']), { kind: 'unavailable' }],
  ['400 without a body', http('400 Bad', ''), { kind: 'unavailable' }],
  ['400 with half of an error', http('400 Bad', '{"error":"invalid_gra'), { kind: 'unavailable' }],
  ['201 with tokens', http('201 Created', JSON.stringify(GOOD)), { kind: 'in_doubt' }],
  ['204', 'HTTP/1.1 204 No Content\r\n\r\n', { kind: 'in_doubt' }],
  ['200 with a web page', http('200 OK', '<html>', ['Content-Type: text/html']), { kind: 'in_doubt' }],
  ['200 with nothing', http('200 OK', ''), { kind: 'in_doubt' }],
  ['200 with half of the tokens', http('200 OK', '{"access_token":"at"'), { kind: 'in_doubt' }],
  ['200 with a list', http('200 OK', '[]'), { kind: 'in_doubt' }],
  ['200 without an access token', http('200 OK', '{"token_type":"bearer"}'), { kind: 'in_doubt' }],
  ['200 with more than 64 KiB', http('200 OK', `{"a":"${'x'.repeat(70_000)}"}`), { kind: 'in_doubt' }],
  ['503 with more than 64 KiB', http('503 Oh', 'x'.repeat(70_000)), { kind: 'in_doubt', failedStatus: 503 }],
  [
    '200 and then silence',
    'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{',
    { kind: 'in_doubt', timedOut: true },
  ],
  [
    '503 and then silence',
    'HTTP/1.1 503 Oh\r\nContent-Length: 99\r\n\r\n{',
    { kind: 'in_doubt', failedStatus: 503 },
  ],
  ['what is not HTTP', 'SSH-2.0-OpenSSH_9.2\r\n', { kind: 'in_doubt' }],
  [
    'invalid_grant with 400',
    http('400 Bad', '{"error":"invalid_grant"}'),
    { kind: 'refused', reason: 'invalid_grant' },
  ],
  ['invalid_grant with 401', http('401 No', '{"error":"invalid_grant"}'), { kind: 'refused' }],
  [
    'invalid_grant with a challenge',
    http('401 No', '{"error":"invalid_grant"}', [
      'Content-Type: application/json',
      'WWW-Authenticate: Basic realm="x"',
    ]),
    { kind: 'refused' },
  ],
  [
    'invalid_grant as text',
    http('400 Bad', '{"error":"invalid_grant"}', ['Content-Type: text/plain']),
    { kind: 'refused' },
  ],
  ['invalid_grant with 403', http('403 No', '{"error":"invalid_grant"}'), { kind: 'unavailable' }],
  ['invalid_grant with 503', http('503 No', '{"error":"invalid_grant"}'), { kind: 'in_doubt' }],
  ['invalid_grant with 200', http('200 OK', '{"error":"invalid_grant"}'), { kind: 'in_doubt' }],
  [
    'invalid_client with 401',
    http('401 No', '{"error":"invalid_client"}'),
    {
      kind: 'unavailable',
      rejectsClient: true,
      reason: /^the response was 401 invalid_client: check CLIENT_ID and CLIENT_SECRET$/,
    },
  ],
  [
    'invalid_client with a challenge',
    http('401 No', '{"error":"invalid_client"}', [
      'Content-Type: application/json',
      'WWW-Authenticate: Basic realm="x"',
    ]),
    { kind: 'unavailable', reason: /invalid_client/ },
  ],
  ['a bare challenge', http('401 No', '', ['WWW-Authenticate: Basic realm="x"']), { kind: 'unavailable' }],
  [
    'unauthorized_client',
    http('400 Bad', '{"error":"unauthorized_client"}'),
    { kind: 'unavailable', ofThisGrant: false, rejectsClient: true },
  ],
  ['access_denied', http('400 Bad', '{"error":"access_denied"}'), { kind: 'unavailable', ofThisGrant: true }],
  [
    'invalid_scope with 403',
    http('403 No', '{"error":"invalid_scope"}'),
    { kind: 'unavailable', ofThisGrant: true },
  ],
  [
    '429',
    http('429 Slow', '{"error":"access_denied"}'),
    { kind: 'unavailable', ofThisGrant: false, rejectsClient: false },
  ],
  [
    'server_error with 400',
    http('400 Bad', '{"error":"server_error"}'),
    { kind: 'unavailable', ofThisGrant: false },
  ],
  [
    'temporarily_unavailable',
    http('400 Bad', '{"error":"temporarily_unavailable"}'),
    { kind: 'unavailable' },
  ],
  [
    'an error code of another type',
    http('400 Bad', '{"error":{"invalid_grant":1}}'),
    { kind: 'unavailable' },
  ],
  [
    'an unprintable error code',
    http('400 Bad', '{"error":"\\u001b[2J"}'),
    { reason: /unreadable error code/ },
  ],
  ['token_type mac', http('200 OK', JSON.stringify({ ...GOOD, token_type: 'mac' })), { kind: 'in_doubt' }],
  ['token_type DPoP', http('200 OK', JSON.stringify({ ...GOOD, token_type: 'DPoP' })), { kind: 'in_doubt' }],
  [
    'an access token outside ASCII',
    http('200 OK', JSON.stringify({ ...GOOD, access_token: 'ä' })),
    { kind: 'in_doubt' },
  ],
  [
    'an access token with a line break',
    http('200 OK', JSON.stringify({ ...GOOD, access_token: 'a\r\nb' })),
    { kind: 'in_doubt' },
  ],
  [
    'an empty access token',
    http('200 OK', JSON.stringify({ ...GOOD, access_token: '' })),
    { kind: 'in_doubt' },
  ],
]

for (const [what, response, expected] of RESPONSES) {
  t.test(`${what} results in ${JSON.stringify(expected)}`, async (t) => {
    const { outcome } = await refreshAt(t, (socket) => socket.write(response))
    t.match(outcome, expected)
    t.notMatch(JSON.stringify(outcome), /refresh token\+/, 'and names no token')
  })
}

t.test('Retry-After may be a date', async (t) => {
  const date = new Date(Date.now() + 20_000).toUTCString()
  const { outcome } = await refreshAt(t, (socket) =>
    socket.write(http('503 Oh', '', [`Retry-After: ${date}`])),
  )
  t.ok(outcome.kind === 'unavailable' && outcome.retryAfterSeconds! > 17 && outcome.retryAfterSeconds! <= 20)
})

t.test('a refused connection means that nothing was sent', async (t) => {
  const outcome = await clientOf(t, `http://127.0.0.1:${await freePort()}`).refresh(TOKEN, bounds(300))
  t.match(outcome, {
    kind: 'unavailable',
    timedOut: false,
    reason: 'the request was not sent (ECONNREFUSED)',
  })
})

t.test('a host name that is not known means that nothing was sent', async (t) => {
  const outcome = await clientOf(t, 'http://nobody.invalid', { ALLOW_INSECURE_HTTP: 'true' }).refresh(
    TOKEN,
    bounds(2_000),
  )
  t.match(outcome, { kind: 'unavailable', reason: /was not sent \((ENOTFOUND|EAI_AGAIN)\)/ })
})

t.test('a connection that fails after the request was written leaves a doubt', async (t) => {
  const reset = await refreshAt(t, (socket) => socket.resetAndDestroy())
  t.match(reset.outcome, { kind: 'in_doubt', timedOut: false })
  const ended = await refreshAt(t, (socket) => socket.end())
  t.match(ended.outcome, { kind: 'in_doubt', timedOut: false })
  const half = await refreshAt(t, (socket) =>
    socket.end('HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"acc'),
  )
  t.match(half.outcome, { kind: 'in_doubt' })
})

t.test('a connection is reused only soon after its response, whatever the server offers', async (t) => {
  const ports = new Set<number | undefined>()
  const { url } = await rawTokenEndpoint(t, (socket) => {
    ports.add(socket.remotePort)
    const body = '{"access_token":"a","token_type":"bearer","expires_in":60}'
    const fields = `Content-Type: application/json\r\nKeep-Alive: timeout=75\r\nContent-Length: ${body.length}`
    socket.write(`HTTP/1.1 200 OK\r\n${fields}\r\n\r\n${body}`)
  })
  const client = clientOf(t, url)
  t.match(await client.refresh(TOKEN, bounds(30_000)), { kind: 'granted' })
  await elapsed(2_500)
  t.match(await client.refresh(TOKEN, bounds(30_000)), { kind: 'granted' })
  t.equal(ports.size, 2)
})

t.test('a request without a response leaves a doubt after its timeout', async (t) => {
  const startedAt = performance.now()
  const { outcome } = await refreshAt(t, () => {})
  t.match(outcome, { kind: 'in_doubt', timedOut: true })
  const took = performance.now() - startedAt
  t.ok(took >= 290, `took ${Math.round(took)} ms`)
})

t.test('TOKEN_TIMEOUT_MS may be any whole number', async (t) => {
  const { url } = await rawTokenEndpoint(t, (socket) => socket.write(http('200 OK', JSON.stringify(GOOD))))
  // As seconds these have no exact binary form, so they do not become the same milliseconds again.
  for (const timeout of ['1005', '2010', '4020', '16100']) {
    const client = clientOf(t, url, { TOKEN_TIMEOUT_MS: timeout })
    t.match(await client.redeemClient(), { kind: 'granted' }, timeout)
  }
})

t.test('a request that got no connection in time is never sent', async (t) => {
  const { url, requests } = await rawTokenEndpoint(t, () => {})
  const client = clientOf(t, url)
  // As many as the client may have connections.
  const hanging = Array.from({ length: 66 }, () => client.refresh(TOKEN, bounds(900)))
  const outcome = await client.refresh(TOKEN, bounds(200, 5_000))
  t.match(outcome, { kind: 'unavailable', timedOut: true, reason: 'the request was not sent' })
  await Promise.all(hanging)
  await elapsed(100)
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
  const client = clientOf(t, url, { TOKEN_TIMEOUT_MS: '60000' })
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

t.test('a late response is used', async (t) => {
  const { url, requests } = await rawTokenEndpoint(t, (socket) => {
    setTimeout(() => socket.write(http('200 OK', JSON.stringify(GOOD))), 600)
  })
  t.match(await clientOf(t, url).refresh(TOKEN, bounds(200, 5_000)), { kind: 'granted' })
  t.equal(requests.length, 1)
})

t.test('an abandoned request is reset, and nothing more of it is delivered', async (t) => {
  const { url, requests } = await rawTokenEndpoint(t, (socket) => {
    socket.on('error', (error: NodeJS.ErrnoException) => codes.push(error.code))
  })
  const codes: (string | undefined)[] = []
  const connection = new AbortController()
  const answer = clientOf(t, url).refresh(TOKEN, { ...bounds(1_000), signal: connection.signal })
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
  const answer = client.refresh(TOKEN, bounds(100, 5_000))
  // This loop stalls the process: the connection is made, and the process does not see it.
  await new Promise<void>((resolve) => process.nextTick(resolve))
  const goesOnAt = performance.now() + 200
  while (performance.now() < goesOnAt);
  t.match(await answer, { kind: 'unavailable', timedOut: true, reason: 'the request was not sent' })
  await elapsed(100)
  t.equal(requests.length, 0)
})

t.test('an abandoned response that ends with its connection raises no error', async (t) => {
  const unhandled: unknown[] = []
  const note = (fault: unknown): void => void unhandled.push(fault)
  process.on('uncaughtException', note)
  t.teardown(() => process.off('uncaughtException', note))
  const { url } = await rawTokenEndpoint(t, (socket, request) => {
    const tooLong = request.includes('long') ? 'x'.repeat(70_000) : ''
    socket.write(`HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n${tooLong}`)
  })
  const client = clientOf(t, url)
  for (const token of ['long', 'silent']) {
    t.match(await client.refresh(new Secret(token), bounds(200)), { kind: 'in_doubt' }, token)
    await elapsed(50)
  }
  t.strictSame(unhandled, [])
})

t.test('odd optional members do not lose the tokens', async (t) => {
  const odd = {
    ...GOOD,
    token_type: 'Bearer',
    expires_in: '1800',
    scope: null,
    id_token: 'garbage',
    callback: 5,
  }
  const type = ['Content-Type: text/html']
  const { outcome } = await refreshAt(t, (socket) => socket.write(http('200 OK', JSON.stringify(odd), type)))
  t.match(outcome, { kind: 'granted', tokens: { lifeSeconds: 1_800, expiresAt: 2_800_000, scope: null } })
  if (outcome.kind !== 'granted') return
  t.equal(outcome.tokens.accessToken.reveal(), 'at')
  t.equal(outcome.tokens.refreshToken?.reveal(), 'rt')
})

t.test('token_type, expires_in and refresh_token are optional', async (t) => {
  for (const refresh_token of [undefined, null, '']) {
    const answer = JSON.stringify({ access_token: 'at', refresh_token })
    const { outcome } = await refreshAt(t, (socket) => socket.write(http('200 OK', answer)))
    t.match(outcome, { kind: 'granted', tokens: { refreshToken: null, lifeSeconds: 3_600 } })
  }
})

t.test('a revocation returns null, or why it failed', async (t) => {
  const answers = [
    http('200 OK', ''),
    http('503 Oh', ''),
    http('400 Bad', '{"error":"unsupported_token_type"}'),
  ]
  const { url, requests } = await rawTokenEndpoint(t, (socket) => socket.write(answers.shift() ?? ''))
  const client = clientOf(t, url)
  t.equal(await client.revoke(TOKEN, 'refresh_token'), null)
  t.equal(await client.revoke(TOKEN, 'refresh_token'), 'the response was 503')
  t.match(await client.revoke(TOKEN, 'access_token'), /unsupported_token_type/)
  t.match(requests[0], /^POST \/oauth\/revoke /)
  t.match(requests[0], /token_type_hint=refresh_token/)
})
