import t, { type Test } from 'tap'
import { createLog } from '../../../src/log.ts'
import type { RevocationFailure } from '../../../src/oauth/client.ts'
import { Secret } from '../../../src/secret.ts'
import { createRevoker } from '../../../src/vault/refresh/revoker.ts'
import { collectLog } from '../../helpers/log-lines.ts'
import { installVirtualTime } from './virtual-time.ts'

const KEY = 'a1b2c3d4e5f6'.padEnd(64, '0')
const DOWN: RevocationFailure = { reason: 'the response was 503', isDefinite: false }
const NO: RevocationFailure = { reason: 'the response was 400 unsupported_token_type', isDefinite: true }

/** A revoker on virtual time. `answer`: what the endpoint says to a token, after `takesMs`. */
function start(t: Test, answer: (token: string, asked: number) => RevocationFailure | null, takesMs = 0) {
  const time = installVirtualTime(t)
  const { sink, lines } = collectLog()
  const log = createLog('info', sink)
  const asked: { token: string; hint: string; at: number }[] = []
  const revoker = createRevoker({
    log,
    clock: time.clock,
    authorizationClient: {
      async revoke(secret, hint, withinMs = 0) {
        const token = secret.reveal()
        asked.push({ token, hint, at: time.clock.monotonic() })
        const count = asked.filter((one) => one.token === token).length
        if (takesMs > 0)
          await new Promise<void>((resolve) => setTimeout(resolve, Math.min(takesMs, withinMs)))
        return answer(token, count)
      },
    },
  })
  const tokens = (name = '') => ({
    accessToken: new Secret(`at${name}`),
    refreshToken: new Secret(`rt${name}`),
  })
  const warned = () => lines().map(({ event, reason, recordKey }) => ({ event, reason, recordKey }))
  return { time, revoker, tokens, asked, warned }
}

t.test('a revocation without a definite answer is tried again three times within a minute', async (t) => {
  const { time, revoker, tokens, asked, warned } = start(t, () => DOWN)
  revoker.revoke(tokens(), KEY)
  await time.advance(600_000)
  t.strictSame(
    asked.map(({ token, at }) => [token, at]),
    [0, 1_000, 6_000, 21_000].flatMap((at) => [
      ['rt', at],
      ['at', at],
    ]),
  )
  t.strictSame(warned(), [{ event: 'revocation.failed', reason: DOWN.reason, recordKey: KEY.slice(0, 12) }])
})

t.test('a slow endpoint is not asked after a minute', async (t) => {
  const { time, revoker, tokens, asked, warned } = start(t, () => DOWN, 10_000)
  revoker.revoke(tokens(), KEY)
  await time.advance(600_000)
  t.strictSame(
    asked.map(({ at }) => at),
    [0, 10_000, 21_000, 31_000, 46_000, 56_000],
  )
  t.equal(warned().length, 1)
})

t.test('settled waits for the tries that follow', async (t) => {
  const { time, revoker, tokens, asked } = start(t, (_token, count) => (count < 3 ? DOWN : null))
  let isSettled = false
  await revoker.settled()
  revoker.revoke(tokens(), KEY)
  void revoker.settled().then(() => {
    isSettled = true
  })
  await time.advance(5_999)
  t.equal(isSettled, false)
  await time.advance(1)
  t.equal(isSettled, true)
  t.equal(asked.length, 6)
})

t.test('what is revoked or definitely refused is not asked again', async (t) => {
  const { time, revoker, tokens, asked, warned } = start(t, (token, count) =>
    token.startsWith('rt') ? NO : count < 3 ? DOWN : null,
  )
  revoker.revoke(tokens(), KEY)
  await time.advance(600_000)
  t.strictSame(
    asked.map(({ token }) => token),
    ['rt', 'at', 'at', 'at'],
  )
  t.strictSame(asked.map(({ hint }) => hint).slice(0, 2), ['refresh_token', 'access_token'])
  t.strictSame(
    warned().map(({ reason }) => reason),
    [NO.reason],
    'the refusal is not forgotten',
  )
})

t.test('at most 1,000 revocations wait, those between two tries included', async (t) => {
  const { time, revoker, tokens, warned } = start(t, () => DOWN)
  for (let name = 0; name < 600; name += 1) revoker.revoke(tokens(String(name)), KEY)
  await time.settle()
  for (let name = 600; name < 1_100; name += 1) revoker.revoke(tokens(String(name)), KEY)
  const skipped = warned().filter(({ event }) => event === 'revocation.skipped')
  t.ok(skipped.length >= 90 && skipped.length <= 100, `${skipped.length}`)
  t.equal(skipped[0]?.recordKey, KEY.slice(0, 12))
  await time.advance(60_000)
  t.equal(warned().length, 1_100, 'each has its warning')
})

t.test('a stop tries once more at once, and begins nothing after its time', async (t) => {
  const { time, revoker, tokens, asked, warned } = start(t, (token) => (token === 'rt' ? DOWN : null))
  revoker.revoke(tokens(), KEY)
  await time.settle()
  const stopped = revoker.stop(5_000)
  await time.settle()
  await stopped
  t.strictSame(
    asked.map(({ token }) => token),
    ['rt', 'at', 'rt'],
  )
  t.equal(warned().length, 1)
  await time.advance(60_000)
  t.equal(asked.length, 3)
})
