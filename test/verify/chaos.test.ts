import t from 'tap'
import { runCampaign } from '../../tools/chaos/campaign.ts'
import { check } from '../../tools/chaos/checks.ts'
import { describeViolations, summarize } from '../../tools/chaos/describe.ts'
import { KINDS, planRound } from '../../tools/chaos/faults.ts'
import {
  type Call,
  createHistory,
  type Fault,
  type History,
  type Session,
  type TokenRequest,
} from '../../tools/chaos/history.ts'
import { withPorts } from '../../tools/chaos/redis.ts'

const USER = 'u00001'

t.test('faults in every component over one Redis break no promise', async (t) => {
  const lines: string[] = []
  const { history, verdict } = await runCampaign(t, {
    // This seed plans a fault of each component.
    ...{ mode: 'single', seed: 51, lengthMs: 1, roundMs: 6_000, browsers: 10 },
    only: [
      'kill a replica',
      'stop a replica',
      'freeze the network to Redis',
      'kill the clients of Redis',
      'freeze the master',
      'cut a replica off from the token endpoint',
    ],
    print: (line) => lines.push(line),
  })
  const described = [...describeViolations(verdict), ...summarize(history, verdict), ...lines]
  t.strictSame(
    verdict.violations.map(({ what }) => what),
    [],
    described.join('\n'),
  )
  t.ok(
    history.calls.some(({ status }) => status === 200),
    'calls were served',
  )
  const struck = new Set(history.faults.map(({ strikes }) => strikes))
  t.strictSame([...struck].sort(), ['Redis', 'network to Redis', 'process', 'token endpoint'])
})

t.test('a seed determines one plan, which matches its mode and duration', async (t) => {
  for (const mode of ['single', 'sentinel', 'cluster'] as const) {
    const options = { seed: 1, mode, round: 1, replicas: 3, lengthMs: 20_000 }
    t.strictSame(planRound(options), planRound(options))
    t.notSame(planRound(options), planRound({ ...options, seed: 2 }))
    const planned = new Set<string>()
    for (let round = 1; round <= 50; round += 1) {
      for (const { name, atMs, lastsMs } of planRound({ ...options, round })) {
        planned.add(name)
        if (atMs + lastsMs > options.lengthMs) t.fail(`${mode}, round ${round}: ${name} lasts too long`)
      }
    }
    const known = Object.keys(KINDS).filter((name) => KINDS[name]!.modes?.includes(mode) ?? true)
    t.strictSame([...planned].sort(), known.sort(), `${mode}: every fault of the mode and no other`)
  }
})

t.test('addresses that Redis announces lead to the links', async (t) => {
  const ports = new Map([
    [15_001, 25_001],
    [15_002, 25_002],
  ])
  for (const [reply, wanted] of [
    ['*2\r\n$9\r\n127.0.0.1\r\n$5\r\n15001\r\n', '*2\r\n$9\r\n127.0.0.1\r\n$5\r\n25001\r\n'],
    ['-MOVED 3999 127.0.0.1:15002\r\n', '-MOVED 3999 127.0.0.1:25002\r\n'],
    ['$4\r\nport\r\n$5\r\n15002\r\n', '$4\r\nport\r\n$5\r\n25002\r\n'],
    ['$9\r\n127.0.0.1\r\n:15001\r\n', '$9\r\n127.0.0.1\r\n:25001\r\n'],
    ['chaos 127.0.0.1 15001 127.0.0.1 15002\r\n', 'chaos 127.0.0.1 25001 127.0.0.1 25002\r\n'],
    ['$5\r\n15001\r\n', '$5\r\n15001\r\n'],
  ] as const) {
    t.equal(withPorts(Buffer.from(reply, 'latin1'), ports).toString('latin1'), wanted)
  }
})

t.test('the checks find what must not happen in a history', async (t) => {
  const at = 20_000

  t.test('an ended session that is served', async (t) => {
    const history = withSession({ ended: { at, replica: 0 }, endingAt: at - 5 })
    history.calls.push(call({ sentAt: at + 100 }), call({ sentAt: at + 1_700 }))
    t.match(found(history), ['an ended session was served by replica 1, 1700 ms after its sign-out'])
  })

  t.test(
    'no violation for an ended session that is served from memory, or by a frozen process',
    async (t) => {
      const history = withSession({ ended: { at, replica: 0 }, endingAt: at - 5 })
      history.calls.push(call({ sentAt: at + 900 }), call({ sentAt: at + 1_700 }))
      history.processes.push({ at: at - 200, replica: 1, what: 'frozen', code: null })
      t.strictSame(found(history), [])
    },
  )

  t.test('data of another user, status 500, no response', async (t) => {
    const history = withSession({})
    history.calls.push(
      call({ dataOf: 'u00002' }),
      call({ status: 500, code: 'internal_error', dataOf: null }),
    )
    history.calls.push(call({ status: 0, code: 'ECONNRESET', dataOf: null }))
    t.match(found(history), [/data of u00002/, /status 500/, /no response/])
  })

  t.test('a session that is lost without a cause', async (t) => {
    const history = withSession({ lostAt: at })
    t.match(found(history), [/a session that was never ended was refused/])
  })

  t.test('a refresh token that is presented again although its response was delivered', async (t) => {
    const history = withSession({ lostAt: at + 5_000 })
    history.tokenRequests.push(
      presented({ arrivedAt: at }),
      presented({ arrivedAt: at + 4_000, outcome: 'invalid_grant' }),
    )
    t.match(found(history), [/presented again/, /a session that was never ended was refused/])
  })

  t.test('a refresh token that is presented again while its response may still arrive', async (t) => {
    const history = withSession({})
    history.tokenRequests.push(
      presented({ arrivedAt: at, deliveredAt: at + 6_000, fault: 'drop' }),
      presented({ arrivedAt: at + 5_000, outcome: 'invalid_grant' }),
    )
    t.match(found(history), [/presented again/])
  })

  t.test('a refresh token in doubt that is presented before its access token has expired', async (t) => {
    for (const [againAt, violations] of [
      [at + 500, [/presented again/]],
      [at + 4_000, []],
    ] as const) {
      const history = withSession({})
      history.tokenRequests.push(
        presented({ arrivedAt: at - 6_000, isRefresh: false, issued: 'cafe' }),
        presented({ arrivedAt: at, deliveredAt: null, closedAt: at + 10, fault: 'drop' }),
        presented({ arrivedAt: againAt, outcome: 'invalid_grant' }),
      )
      t.match(found(history), violations)
      t.equal(found(history).length, violations.length)
    }
  })

  t.test('a response that was lost on purpose explains a lost session', async (t) => {
    const history = withSession({ lostAt: at + 5_000 })
    history.faults.push(
      fault({ kind: 'cut a replica off from the token endpoint', from: at, until: at + 500 }),
    )
    history.tokenRequests.push(
      presented({ arrivedAt: at, deliveredAt: null, closedAt: at + 10 }),
      presented({ arrivedAt: at + 4_000, outcome: 'invalid_grant', status: 400 }),
    )
    const { losses, violations } = check(history)
    t.strictSame(violations, [])
    t.match(losses, [{ cause: 'a response was lost, on purpose' }])
  })

  t.test('a stop that does not exit with 0', async (t) => {
    const history = withSession({})
    history.processes.push({ replica: 0, at, what: 'terminated', code: null })
    history.processes.push({ replica: 0, at: at + 3_000, what: 'exited', code: 1 })
    t.match(found(history), [/exited with 1/])
    history.faults.push(fault({ strikes: 'Redis', from: at, until: at + 1_000 }))
    t.strictSame(found(history), [], 'Redis did not take its tokens')
  })

  t.test('a session that is not served after the faults', async (t) => {
    const history = withSession({})
    history.healings.push({ from: at, until: at + 45_000, notServed: [USER] })
    t.match(found(history), [/not served by every replica/])
  })

  function withSession(changes: Partial<Session>): History {
    const history = createHistory()
    history.sessions.set(USER, {
      ...{ user: USER, signInBeganAt: at - 10_000, signedInAt: at - 9_500, recordKey: '0123456789ab' },
      ...{ endingAt: null, ended: null, lostAt: null },
      ...changes,
    })
    return history
  }

  function call(changes: Partial<Call>): Call {
    const sentAt = changes.sentAt ?? at
    return {
      ...{ sentAt, respondedAt: sentAt + 5, replica: 1, session: USER, what: 'flux', status: 200, code: '' },
      ...{ dataOf: USER, ...changes },
    }
  }

  function fault(changes: Partial<Fault>): Fault {
    const common = {
      kind: '',
      strikes: 'token endpoint',
      replica: 0,
      detail: '',
      from: at,
      until: null,
    } as const
    return { ...common, ...changes }
  }

  function presented(changes: Partial<TokenRequest> & { arrivedAt: number }): TokenRequest {
    const { arrivedAt } = changes
    return {
      ...{ seq: arrivedAt, replica: 0, isRefresh: true, token: 'cafe', issued: null },
      ...{ forwardedAt: arrivedAt, status: 200, deliveredAt: arrivedAt + 5, closedAt: null },
      ...{ user: USER, outcome: 'granted', fault: null, ...changes },
    }
  }

  function found(history: History): string[] {
    return check(history).violations.map(({ what }) => what)
  }
})
