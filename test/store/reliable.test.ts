import t from 'tap'
import { createLog } from '../../src/log.ts'
import { Secret } from '../../src/secret.ts'
import type { ReplaceTokens } from '../../src/store/store.ts'
import { StoreUnavailable } from '../../src/store/store.ts'
import { createUnsaved, type Waiting } from '../../src/tokens/unsaved.ts'
import { installVirtualTime } from '../tokens/virtual-time.ts'

function waitingTokens(endsAt: number, gen = 2): Waiting {
  const tokens = {
    accessToken: new Secret('a'),
    refreshToken: new Secret('r'),
    expiresAt: endsAt,
    lifeSeconds: 60,
    scope: null,
  }
  const record = {
    session: '{}',
    tokens: '',
    gen: gen - 1,
    createdAt: 0,
    seenAt: 0,
    endsAt,
    flow: 'code',
    client: '',
    doubts: 0,
    leaseUntil: 0,
    retryAt: 0,
    replacedAt: 0,
  } as const
  return { tokens, gen, record }
}

t.test('tokens that the store refuses are held, and tried again at least every two seconds', async (t) => {
  const time = installVirtualTime(t)
  const settled: string[] = []
  const unsaved = createUnsaved({
    clock: time.clock,
    log: createLog('silent'),
    onRetry() {
      retries += 1
    },
    onSettled: (_key, _waiting, result) => settled.push(result),
  })
  const tries: number[] = []
  let retries = 0
  let up = false
  const save = async (): Promise<ReplaceTokens> => {
    tries.push(time.now())
    // A command takes up to 800 ms to fail.
    await new Promise((resolve) => setTimeout(resolve, 800))
    if (!up) throw new StoreUnavailable(new Error('down'))
    return { kind: 'replaced', gen: 2 }
  }
  const waiting = waitingTokens(time.now() + 600_000)
  unsaved.hold('a', waiting, save)
  t.equal(unsaved.get('a'), waiting)
  t.equal(unsaved.size(), 1)
  await time.advance(30_000)
  for (let at = 1; at < tries.length; at += 1) t.ok(tries[at]! - tries[at - 1]! <= 2_000)
  t.ok(tries.length > 10)
  t.equal(retries, tries.length, 'each is told')
  up = true
  await time.advance(3_000)
  t.strictSame(settled, ['replaced'])
  t.equal(unsaved.get('a'), null)
  await unsaved.settled()
  t.equal(time.waiting(), 0)
})

t.test('they are given up at the absolute limit of the session', async (t) => {
  const time = installVirtualTime(t)
  const settled: string[] = []
  const unsaved = createUnsaved({
    clock: time.clock,
    log: createLog('silent'),
    onRetry: () => {},
    onSettled: (_key, _waiting, result) => settled.push(result),
  })
  unsaved.hold('a', waitingTokens(time.now() + 5_000), () => Promise.reject(new StoreUnavailable(null)))
  await time.advance(8_000)
  t.strictSame(settled, ['expired'])
  t.equal(unsaved.size(), 0)
})

t.test('settling older tokens leaves newer ones of the same session held', async (t) => {
  const time = installVirtualTime(t)
  const unsaved = createUnsaved({
    clock: time.clock,
    log: createLog('silent'),
    onRetry: () => {},
    onSettled: () => {},
  })
  unsaved.hold('a', waitingTokens(time.now() + 600_000, 2), async () => ({ kind: 'moved' }))
  const newer = waitingTokens(time.now() + 600_000, 3)
  unsaved.hold('a', newer, () => Promise.reject(new StoreUnavailable(null)))
  await time.advance(500)
  t.equal(unsaved.get('a'), newer)
})
