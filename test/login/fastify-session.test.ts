import t from 'tap'
import { createSessionCookies, recordKeyOf } from '../../src/http/cookies.ts'
import { createServer } from '../../src/http/server.ts'
import { createKeyring } from '../../src/keyring.ts'
import { createLog } from '../../src/log.ts'
import { addBrowserSession, addCookies } from '../../src/login/fastify-session.ts'
import { Secret } from '../../src/secret.ts'
import type { Found } from '../../src/vault/session.ts'
import { configOf } from '../config/environment.ts'

declare module 'fastify' {
  interface Session {
    planted?: string
  }
}

t.test(
  'request.session holds what a page may know, and a route can neither keep nor revive anything by it',
  async (t) => {
    const keyring = createKeyring([new Secret('a-secret-of-the-tests-longer-than-32-characters')])
    const cookies = createSessionCookies({ keyring, publicUrl: 'http://localhost', secure: false })
    const server = createServer(configOf({}), createLog('silent'))
    t.teardown(() => server.close())
    const ids = { live: cookies.newSessionId(), ended: cookies.newSessionId() }
    const confirmed: string[] = []
    const ended: string[] = []
    await addCookies(server)
    await addBrowserSession(server, {
      cookies,
      sessionFacts: () => ({ flow: 'code' }),
      vault: {
        async confirm(key) {
          confirmed.push(key)
          return key === recordKeyOf(ids.live)
        },
        look: async (key): Promise<Found> =>
          key === recordKeyOf(ids.live)
            ? { kind: 'live', session: { key, record: { bound: false } } as never }
            : { kind: 'ended', reason: 'idle', at: 0 },
        async end(key) {
          ended.push(key)
          return { kind: 'ended' } as never
        },
      },
    })
    server.get('/state', async ({ session }) => ({ state: session.state, planted: session.planted }))
    server.get('/plant', async ({ session }) => {
      session.planted = 'a value'
      return {}
    })
    server.get('/destroy', async ({ session }) => await session.destroy())
    const get = (url: string, id: string) => server.inject({ url, cookies: { session: cookies.sign(id) } })

    t.strictSame((await get('/state', ids.live)).json(), {
      state: { kind: 'live', facts: { flow: 'code' }, bound: false },
    })
    const gone = await get('/state', ids.ended)
    t.strictSame(gone.json(), { state: { kind: 'ended', reason: 'idle', at: 0 } })
    t.strictSame(gone.cookies, [], 'the cookie of a session that has ended stays, and with it the reason')
    t.strictSame((await server.inject('/state')).json(), {}, 'no session without a cookie')
    t.strictSame(confirmed, [], 'a request that reads writes nothing')

    t.equal((await get('/plant', ids.live)).statusCode, 200)
    t.notOk((await get('/state', ids.live)).json().planted)
    t.not((await get('/plant', ids.ended)).statusCode, 200)
    t.strictSame(
      [...new Set(confirmed)],
      [recordKeyOf(ids.live), recordKeyOf(ids.ended)],
      'saving confirms and never creates',
    )

    await get('/destroy', ids.live)
    t.strictSame(ended, [recordKeyOf(ids.live)])
  },
)
