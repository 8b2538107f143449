import t from 'tap'
import { shared } from '../helpers/shared.ts'
import { ask, problemOf } from './wire.ts'

t.test('cross_origin names the origin that asked and PUBLIC_URL, in detail and log', async (t) => {
  const { bff, port } = await shared({ OAUTH_FLOWS: 'code,password' })
  for (const [origin, named] of [
    ['https://other.example', 'from https://other.example.'],
    ['http://localhost:5173', 'from http://localhost:5173.'],
    ['null', 'from null.'],
    ['no <origin>', 'with an Origin that no browser writes.'],
    ['https://evil.example/', 'with an Origin that no browser writes.'],
    [`https://${'a'.repeat(300)}.example`, 'with an Origin that no browser writes.'],
  ] as const) {
    for (const [method, target] of [
      ['POST', '/auth/logout'],
      ['POST', '/auth/session'],
      ['POST', '/auth/password'],
      ['PUT', '/site/1'],
      ['GET', '/flux/a'],
    ] as const) {
      const answer = await ask(port, { method, target, headers: [['Origin', origin]] })
      const { status, code, detail } = problemOf(answer)
      t.strictSame([status, code], [403, 'cross_origin'])
      t.match(detail, named)
      t.match(detail, `Only pages of ${bff.publicUrl} may ask`)
      t.match(bff.log(), JSON.stringify({ reason: detail }).slice(1, -1))
    }
  }
  const cors = ['Sec-Fetch-Mode', 'cors'] as const
  const cross = ['Sec-Fetch-Site', 'cross-site'] as const
  const signIn = `a navigation of the whole page to ${bff.publicUrl},`
  for (const [target, headers, asked, allowed = 'may ask'] of [
    ['/flux/a', [['Sec-Fetch-Site', 'same-site']], 'marked same-site'],
    ['/flux/a', [['Referer', 'https://other.example/page?planted=1']], 'from https://other.example.'],
    ['/flux/a', [['Referer', 'about:planted']], 'without an origin'],
    [
      '/auth/login',
      [cors, cross, ['Origin', 'https://other.example']],
      'from https://other.example.',
      signIn,
    ],
    [
      '/auth/login',
      [cors, cross, ['Referer', 'https://other.example/p']],
      'from https://other.example.',
      signIn,
    ],
    ['/auth/login', [cors, cross], 'marked cross-site.', signIn],
  ] as const) {
    const { code, detail } = problemOf(await ask(port, { target, headers }))
    t.equal(code, 'cross_origin')
    t.match(detail, asked)
    t.match(detail, allowed)
    t.notMatch(detail, 'planted')
    t.match(bff.log(), JSON.stringify({ reason: detail }).slice(1, -1))
  }
})
