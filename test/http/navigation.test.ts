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
  for (const [site, asked] of [
    [[['Sec-Fetch-Site', 'same-site']], 'marked same-site'],
    [[['Referer', 'https://other.example/page?planted=1']], 'from https://other.example.'],
    [[['Referer', 'about:planted']], 'without an origin'],
  ] as const) {
    const { detail } = problemOf(await ask(port, { target: '/flux/a', headers: site }))
    t.match(detail, asked)
    t.notMatch(detail, 'planted')
  }
})

t.test('a sign-in in a script is cross_origin, and names who asked and PUBLIC_URL', async (t) => {
  const { bff, port } = await shared()
  const mode = ['Sec-Fetch-Mode', 'cors'] as const
  const site = ['Sec-Fetch-Site', 'cross-site'] as const
  for (const [headers, asked] of [
    [[mode, site, ['Origin', 'https://other.example']], 'from https://other.example.'],
    [[mode, site, ['Referer', 'https://other.example/page']], 'from https://other.example.'],
    [[mode, site], 'marked cross-site.'],
  ] as const) {
    const { status, code, detail } = problemOf(await ask(port, { target: '/auth/login', headers }))
    t.strictSame([status, code], [403, 'cross_origin'])
    t.match(detail, asked)
    t.match(detail, `a navigation of the whole page to ${bff.publicUrl},`)
    t.match(bff.log(), JSON.stringify({ reason: detail }).slice(1, -1))
  }
})
