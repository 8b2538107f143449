import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import t from 'tap'
import { runCampaign } from '../../tools/chaos/campaign.ts'
import { check } from '../../tools/chaos/checks.ts'
import {
  type Call,
  createHistory,
  type History,
  type Session,
  type TokenRequest,
} from '../../tools/chaos/history.ts'
import { createPortTranslator, resetConnection } from '../../tools/chaos/network.ts'
import { KINDS, planRound } from '../../tools/chaos/plan.ts'
import { describeViolations, summarize } from '../../tools/chaos/report.ts'
import { listenOnLoopback } from '../helpers/ports.ts'

const USER = 'u00001'

t.test('faults in every component over one Redis break no promise', async (t) => {
  const lines: string[] = []
  const outcome = await runCampaign(t, {
    // This seed plans a fault in each area.
    ...{ mode: 'single', seed: 'npm test 5', lengthMs: 1, roundMs: 6_000, browsers: 10 },
    kinds: [
      'kill a replica',
      'stop a replica',
      'freeze the network to Redis',
      'reset the connections to Redis',
      'kill the clients of Redis',
      'freeze the master for a moment',
      'the token endpoint responds with errors',
      'refuse connections to the token endpoint',
    ],
    print: (line) => lines.push(line),
  })
  const described = [...describeViolations(outcome, true), ...summarize('single', outcome), ...lines]
  t.strictSame(
    outcome.verdict.violations.map(({ what }) => what),
    [],
    described.join('\n'),
  )
  t.ok(outcome.history.calls.filter(({ status }) => status === 200).length > 100, 'calls were served')
  const areas = new Set(outcome.history.faults.map(({ area }) => area))
  t.strictSame([...areas].sort(), ['process', 'redis', 'token'], 'faults were made in each')
})

t.test('a seed determines one plan, which matches its mode and duration', async (t) => {
  for (const mode of ['single', 'sentinel', 'cluster'] as const) {
    const options = { seed: 'a', mode, round: 1, lengthMs: 20_000 }
    t.strictSame(planRound(options), planRound(options))
    t.notSame(planRound(options), planRound({ ...options, seed: 'b' }))
    for (let round = 1; round <= 50; round += 1) {
      const wrong = planRound({ ...options, round }).filter(
        ({ kind, atMs, lastsMs }) =>
          !(KINDS[kind].modes as readonly string[]).includes(mode) || atMs + lastsMs > options.lengthMs,
      )
      t.strictSame(wrong, [], `${mode}, round ${round}`)
    }
  }
})

t.test('addresses that Redis announces lead to the links, wherever a reply is split', async (t) => {
  const ports = new Map([
    [15_001, 25_001],
    [15_002, 25_002],
  ])
  const replies = [
    ['*2\r\n$9\r\n127.0.0.1\r\n$5\r\n15001\r\n', '*2\r\n$9\r\n127.0.0.1\r\n$5\r\n25001\r\n'],
    ['-MOVED 3999 127.0.0.1:15002\r\n', '-MOVED 3999 127.0.0.1:25002\r\n'],
    ['$4\r\nport\r\n$5\r\n15002\r\n', '$4\r\nport\r\n$5\r\n25002\r\n'],
    ['$9\r\n127.0.0.1\r\n:15001\r\n', '$9\r\n127.0.0.1\r\n:25001\r\n'],
    ['chaos 127.0.0.1 15001 127.0.0.1 15002\r\n', 'chaos 127.0.0.1 25001 127.0.0.1 25002\r\n'],
    ['$5\r\n15001\r\n', '$5\r\n15001\r\n'],
  ]
  const whole = replies.map(([from]) => from).join('')
  const wanted = replies.map(([, to]) => to).join('')
  const wrong: number[] = []
  for (let cut = 1; cut < whole.length; cut += 1) {
    const translate = createPortTranslator(ports)
    const parts = [whole.slice(0, cut), whole.slice(cut), '']
    const sent = parts.map((part) => translate(Buffer.from(part, 'latin1')).toString('latin1')).join('')
    if (sent !== wanted) wrong.push(cut)
  }
  t.strictSame(wrong, [], 'breaks that come out wrong')
})

t.test('a connection is reset, also in the moment in which its other end has ended it', async (t) => {
  const errors: Error[] = []
  for (const ends of [false, true]) {
    const server = createServer((socket) => {
      socket.on('error', (error) => errors.push(error))
      socket.resume()
      // After the listeners of 'end' and their next ticks, in which Node ends the socket on its own side.
      if (ends) socket.once('end', () => queueMicrotask(() => resetConnection(socket)))
      else resetConnection(socket)
    })
    const port = await listenOnLoopback(t, server)
    const accepted = once(server, 'connection') as Promise<[Socket]>
    const client = connect(port, '127.0.0.1').on('error', () => {})
    t.teardown(() => client.destroy())
    if (ends) client.end()
    const [socket] = await accepted
    if (!socket.closed) await once(socket, 'close')
  }
  t.strictSame(errors, [])
})

t.test('the checks find what must not happen in a history', async (t) => {
  const at = 20_000

  t.test('an ended session that is served', async (t) => {
    const history = withSession({ ended: { at, replica: 0 }, endingAt: at - 5 })
    history.calls.push(call({ sentAt: at + 1_700 }))
    t.match(found(history), ['an ended session was served by replica 1, 1700 ms after its sign-out'])
  })

  t.test('no violation for a session that is served before the sign-out can have arrived', async (t) => {
    const history = withSession({ ended: { at, replica: 0 }, endingAt: at - 5 })
    history.calls.push(call({ sentAt: at + 100 }))
    t.strictSame(found(history), [])
  })

  t.test('a replica that is cut off from Redis may serve for one second', async (t) => {
    const history = withSession({ ended: { at, replica: 0 }, endingAt: at - 5 })
    const fault = { kind: 'cut', area: 'redis', replica: 1, node: null, detail: '' } as const
    history.faults.push({ ...fault, from: at - 200, until: at + 9_000 })
    history.calls.push(call({ sentAt: at + 900 }))
    t.strictSame(found(history), [])
    history.calls.push(call({ sentAt: at + 1_500 }))
    t.match(found(history), [/an ended session was served/])
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

  t.test('a response that takes too long', async (t) => {
    const history = withSession({})
    history.calls.push(call({ respondedAt: at + 6_000 }))
    t.match(found(history), [/took longer/])
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
      presented({ arrivedAt: at, deliveredAt: at + 6_000, fault: 'slow' }),
      presented({ arrivedAt: at + 5_000, outcome: 'invalid_grant' }),
    )
    t.match(found(history), [/presented again/])
  })

  t.test('a response that was lost on purpose explains a lost session', async (t) => {
    const history = withSession({ lostAt: at + 5_000 })
    const lost = { deliveredAt: null, closedAt: at + 10, lostBy: 'lose token responses' }
    history.tokenRequests.push(
      presented({ arrivedAt: at, ...lost }),
      presented({ arrivedAt: at + 4_000, outcome: 'invalid_grant', status: 400 }),
    )
    const { losses, violations } = check(history)
    t.strictSame(violations, [])
    t.match(losses, [{ cause: 'a response was lost after rotation, on purpose' }])
  })

  t.test('a stop that does not exit with 0', async (t) => {
    const history = withSession({})
    const common = { replica: 0, expected: true }
    history.processes.push({ ...common, at, what: 'terminated', code: null })
    history.processes.push({ ...common, at: at + 3_000, what: 'exited', code: 1 })
    t.match(found(history), [/exited with 1/])
  })

  t.test('a session that is not served after the faults', async (t) => {
    const history = withSession({})
    history.healings.push({ from: at, until: at + 45_000, notServed: [USER] })
    t.match(found(history), [/not served by every replica/])
  })

  function withSession(changes: Partial<Session>): History {
    const history = createHistory('single')
    history.sessions.set(USER, {
      ...{ user: USER, signInBeganAt: at - 10_000, signedInAt: at - 9_500, recordKey: '0123456789ab' },
      ...{ endingAt: null, ended: null, lostAt: null, cameBackAt: null },
      ...changes,
    })
    return history
  }

  function call(changes: Partial<Call>): Call {
    const sentAt = changes.sentAt ?? at
    return {
      ...{ sentAt, respondedAt: sentAt + 5, replica: 1, session: USER, what: 'flux', status: 200, code: '' },
      ...{ dataOf: USER, authenticated: null },
      ...changes,
    }
  }

  function presented(changes: Partial<TokenRequest> & { arrivedAt: number }): TokenRequest {
    const { arrivedAt } = changes
    return {
      ...{ seq: arrivedAt, replica: 0, kind: 'refresh', token: 'cafe', user: USER, forwardedAt: arrivedAt },
      ...{
        respondedAt: arrivedAt + 5,
        status: 200,
        deliveredAt: arrivedAt + 5,
        closedAt: null,
        lostBy: null,
      },
      ...{ outcome: 'granted', fault: null },
      ...changes,
    }
  }

  function found(history: History): string[] {
    return check(history).violations.map(({ what }) => what)
  }
})
