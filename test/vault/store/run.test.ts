import t from 'tap'
import {
  decodeFacts,
  decodeState,
  encodeFacts,
  type RecordKey,
  type RecordMember,
  recordMembers,
  type StoredRecord,
  stateOf,
} from '../../../src/vault/store/record.ts'
import { createRun, type RecordChange, type Shown, type WriteReply } from '../../../src/vault/store/run.ts'
import { StoreUnavailable } from '../../../src/vault/store/store.ts'
import { IDLE_MS, leaseRequest, newRecord } from './stores.ts'

const NOW = 1_800_000_000_000
const KEY: RecordKey = 'k'

/** Steps over one server that the test holds in its hands. `before`: runs before each write. */
function start() {
  const server = { now: NOW, history: 'a', record: null as StoredRecord | null, passedMs: 0 }
  const sent: string[] = []
  let before = (): void => {}
  let replyMs = 0
  const version = () => (server.record === null ? '' : encodeFacts(server.record))
  const run = createRun(
    {
      async read(_key, member: RecordMember): Promise<Shown> {
        sent.push(`read for ${member}`)
        server.passedMs += replyMs
        return { record: server.record, version: version(), now: server.now }
      },
      async write(_key, member, change: RecordChange): Promise<WriteReply> {
        sent.push(`write for ${member}`)
        before()
        if (change.version !== version()) return { kind: 'changed' }
        if (change.history !== null && change.history !== server.history)
          return { kind: 'moved', history: server.history }
        server.record = change.after.record
        return { kind: 'written', version: version(), now: server.now }
      },
      historyOf: () => '',
    },
    { idleMs: IDLE_MS, withinMs: 800, monotonic: () => server.passedMs },
  )
  const members = recordMembers(run, () => server.now)
  return {
    ...members,
    server,
    /** The commands since the last call. */
    sent: () => sent.splice(0),
    beforeWrite(work: () => void) {
      before = work
    },
    slow(ms: number) {
      replyMs = ms
    },
    pass(ms: number) {
      server.now += ms
      server.passedMs += ms
    },
    async begin() {
      await members.create(KEY, newRecord(NOW), 15_000)
      await members.confirm(KEY)
      sent.length = 0
    },
  }
}

t.test('a step on a record that was just read or written is one command', async (t) => {
  const session = start()
  await session.create(KEY, newRecord(NOW), 15_000)
  // The write finds out which replication id the server has.
  t.strictSame(session.sent(), ['read for create', 'write for create', 'write for create'])
  t.equal(await session.confirm(KEY), true)
  t.strictSame(session.sent(), ['write for confirm'])
  t.match(await session.read(KEY), { gen: 1, tokens: 'sealed-1' })
  t.match(await session.beginRefresh(KEY, leaseRequest('a')), { kind: 'granted', doubts: 0 })
  t.equal(await session.renewLease(KEY, { gen: 1, attempt: 'a', doubts: 1, leaseMs: 60_000 }), 'held')
  t.match(await session.replaceTokens(KEY, { gen: 1, tokens: 'sealed-2' }), { written: true })
  t.equal(await session.touch(KEY), true)
  t.match(await session.end(KEY), { kind: 'ended', tokens: 'sealed-2' })
  const refresh = ['beginRefresh', 'renewLease', 'replaceTokens', 'touch', 'end'].map(
    (one) => `write for ${one}`,
  )
  t.strictSame(session.sent(), ['read for read', ...refresh])
})

t.test('a step that finds nothing to write has read the record', async (t) => {
  const session = start()
  await session.begin()
  session.server.record = null
  t.match(await session.beginRefresh(KEY, leaseRequest('a', { gen: 7 })), { kind: 'gone' })
  t.strictSame(session.sent(), ['read for beginRefresh'])
  t.equal(await session.read(KEY), null)
})

t.test('a step whose record has changed meanwhile runs again on what it is now', async (t) => {
  const session = start()
  await session.begin()
  const { server } = session
  session.beforeWrite(() => {
    session.beforeWrite(() => {})
    server.record = { ...server.record!, lease: 'of another', leaseUntil: NOW + 9_000 }
  })
  t.match(await session.beginRefresh(KEY, leaseRequest('a')), { kind: 'busy', waitMs: 9_000 })
  t.equal(server.record?.lease, 'of another')
  t.equal(server.record?.doubts, 0)
})

t.test('after a lost reply the same attempt is granted again, and counted once', async (t) => {
  const session = start()
  await session.begin()
  await session.beginRefresh(KEY, leaseRequest('a'))
  session.server.record = { ...session.server.record!, seenAt: NOW + 1 }
  t.match(await session.beginRefresh(KEY, leaseRequest('a')), { kind: 'granted', doubts: 0 })
  t.equal(session.server.record?.doubts, 1)
})

t.test('a lease is taken on the server that has the record now, or paused', async (t) => {
  const session = start()
  await session.begin()
  session.server.history = 'b'
  t.match(await session.beginRefresh(KEY, leaseRequest('a')), { kind: 'paused' })
  t.strictSame(session.sent(), ['write for beginRefresh', 'write for beginRefresh'])
  t.equal(session.server.record?.history, 'b')
})

t.test('the time of a step goes on from the last reply, and is old after a minute', async (t) => {
  const session = start()
  await session.begin()
  session.pass(59_999)
  await session.touch(KEY)
  t.equal(session.server.record?.seenAt, NOW + 59_999)
  t.strictSame(session.sent(), ['write for touch'])
  session.pass(60_001)
  // A step of the server's clock.
  session.server.now += 5_000
  await session.touch(KEY)
  t.strictSame(session.sent(), ['read for touch', 'write for touch'])
  t.equal(session.server.record?.seenAt, NOW + 125_000)
})

t.test('two commands that take 400 ms each are in time for a step', async (t) => {
  const session = start()
  await session.begin()
  session.slow(400)
  session.pass(100_000)
  await session.end(KEY)
  t.equal(session.server.record, null)
})

t.test('nothing is written once the time of a step is over', async (t) => {
  const session = start()
  await session.begin()
  session.slow(960)
  session.pass(100_000)
  await t.rejects(session.end(KEY), StoreUnavailable)
  t.strictSame(session.sent(), ['read for end'])
  t.not(session.server.record, null)
})

t.test('a step whose process was held up goes on where it was', async (t) => {
  const session = start()
  // No command may take so long, so the process has read the reply late.
  session.slow(3_000)
  await session.create(KEY, newRecord(NOW), 15_000)
  t.strictSame(session.sent(), ['read for create', 'write for create', 'write for create'])
})

t.test('the text of a record has what differs from nothing, in ASCII, and is read again as it was', (t) => {
  const none = decodeFacts('{}', 'sealed')
  t.equal(encodeFacts(none), '{}\n')
  const record = {
    ...none,
    ...{
      gen: 3,
      createdAt: NOW,
      seenAt: NOW + 1,
      endsAt: NOW + 2,
      client: 'ü "\n\u0000€',
      flow: 'token' as const,
    },
    ...{ doubts: 2, lease: 'a"\\~', leaseUntil: 1.5, leasedAt: 2, openUntil: 3, retryAt: 4, retrySetAt: 5 },
    ...{ forcedAt: 6, forcedGen: 7, history: '0123abcd', replacedAt: 8 },
  }
  const text = encodeFacts(record)
  t.match(text, /^\{[ -~]*\}\n$/)
  t.strictSame(decodeFacts(text, 'sealed'), record)
  t.end()
})

t.test('every fact has a name of its own in the text', (t) => {
  const { tokens, expireAt, ...none } = decodeFacts('{}', 'sealed')
  const differs = (value: unknown, at: number): unknown =>
    typeof value === 'number' ? at + 1 : typeof value === 'string' ? `text ${at}` : true
  const facts = Object.entries(none).map(([name, value], at) => [name, differs(value, at)])
  t.ok(facts.length > 20)
  const record = { ...Object.fromEntries(facts), tokens, expireAt }
  t.strictSame(decodeFacts(encodeFacts(record), tokens), record)
  t.end()
})

t.test('a small read decodes what a full one does', (t) => {
  const nothing = decodeFacts('{}', '')
  const bound = { ...nothing, ...{ gen: 3, seenAt: NOW, endsAt: NOW + 90_000, bound: true, client: 'a' } }
  for (const record of [nothing, { ...bound, endsAt: NOW + 10_000 }, bound]) {
    const text = encodeFacts(record)
    t.strictSame(decodeState(text, 60_000), stateOf(decodeFacts(text, ''), 60_000))
  }
  t.end()
})

t.test('facts that only a later version knows are kept', (t) => {
  // No fact has a name with an underscore.
  const text = '{"g":1,"_later":{"x":"1"}}\n'
  const record = decodeFacts(text, '')
  t.equal(record.gen, 1)
  t.strictSame(record.others, { _later: { x: '1' } })
  t.equal(encodeFacts({ ...record, gen: 2 }), '{"g":2,"_later":{"x":"1"}}\n')
  t.end()
})
