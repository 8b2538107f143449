import t from 'tap'
import { runCampaign } from '../../tools/chaos/campaign.ts'
import { check } from '../../tools/chaos/checks.ts'
import { describeViolations, summarize } from '../../tools/chaos/describe.ts'
import {
  type Call,
  createHistory,
  type History,
  type Session,
  type TokenRequest,
} from '../../tools/chaos/history.ts'

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
  t.equal(verdict.violations.length, 0, described.join('\n'))
  t.ok(history.calls.filter(({ status }) => status === 200).length > 0, 'calls were served')
  const struck = new Set(history.faults.map(({ strikes }) => strikes))
  t.strictSame([...struck].sort(), ['Redis', 'network to Redis', 'process', 'token endpoint'])
})

t.test('the checks find what must not happen in a history', async (t) => {
  const at = 20_000

  t.test('an ended session that is served', async (t) => {
    const history = withSession({ ended: { at, replica: 0 }, endingAt: at - 5 })
    history.calls.push(call({ sentAt: at + 100 }), call({ sentAt: at + 1_700 }))
    t.match(found(history), ['served by replica 1, 1700 ms after its sign-out by replica 0'])

    history.failovers.push({ at: at + 1_000, troubleSince: at - 100, to: 'Redis 2' })
    history.calls.push(call({ sentAt: at + 40_000 }))
    t.match(found(history), ['40000 ms after its sign-out by replica 0'], 'its process can write it again')
    history.processes.push({ at: at + 900, what: 'killed', replica: 0, code: null })
    t.strictSame(found(history), [], 'it is lost with master and process')
  })

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
