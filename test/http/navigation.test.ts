import t from 'tap'
import { shared } from '../helpers/shared.ts'
import { ask, problemOf } from './wire.ts'

const CORS = ['Sec-Fetch-Mode', 'cors'] as const
const CROSS = ['Sec-Fetch-Site', 'cross-site'] as const
const SAME_SITE = ['Sec-Fetch-Site', 'same-site'] as const
const UNKNOWN = 'with an Origin that no browser writes.'

t.test('cross_origin names the origin that asked and PUBLIC_URL, in detail and log', async (t) => {
  const { bff, port } = await shared()
  const origin = (text: string) => ['Origin', text] as const
  const referer = (text: string) => ['Referer', text] as const
  for (const [target, headers, asked] of [
    ['/flux/a', [origin('https://other.example')], 'from https://other.example.'],
    ['/flux/a', [origin('http://localhost:5173')], 'from http://localhost:5173.'],
    ['/flux/a', [origin('null')], 'from null.'],
    ['/flux/a', [origin('planted <origin>')], UNKNOWN],
    ['/flux/a', [origin('https://evil.example/')], UNKNOWN],
    ['/flux/a', [origin(`https://${'a'.repeat(300)}.example`)], UNKNOWN],
    ['/flux/a', [SAME_SITE], 'marked same-site'],
    ['/flux/a', [referer('https://other.example/page?planted=1')], 'from https://other.example.'],
    ['/flux/a', [referer('about:planted')], 'without an origin'],
    ['/auth/login', [CORS, CROSS, origin('https://other.example')], 'from https://other.example.'],
    ['/auth/login', [CORS, CROSS, referer('https://other.example/p')], 'from https://other.example.'],
    ['/auth/login', [CORS, CROSS], 'marked cross-site.'],
    ['/auth/login', [CORS, ['Sec-Fetch-Site', 'same-origin']], 'marked same-origin.'],
    ['/flux/a', [CROSS, origin(bff.publicUrl)], 'marked cross-site.'],
  ] as const) {
    const { code, detail } = problemOf(await ask(port, { target, headers }))
    t.equal(code, 'cross_origin')
    t.match(detail, asked)
    const { publicUrl } = bff
    const allowed =
      target === '/flux/a' ? `Only pages of ${publicUrl} may ask` : `whole page to ${publicUrl},`
    t.match(detail, allowed)
    t.notMatch(detail, 'planted')
    t.match(bff.log(), JSON.stringify({ reason: detail }).slice(1, -1))
  }
})
