import t from 'tap'
import { comesFromOwnOrigin } from '../../src/http/same-origin.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { ask, portOf, problemOf, type Question } from './wire.ts'

const SITES = [
  undefined,
  'same-origin',
  'same-site',
  'cross-site',
  'none',
  '',
  'Same-Origin',
  'same-origin, same-origin',
]
const CSRF = [undefined, '1', '0', 'true', '']

function origins(own: string): (string | undefined)[] {
  const { port } = new URL(own)
  return [
    undefined,
    own,
    'null',
    'https://evil.test',
    `${own}.evil.test`,
    `${own}/`,
    own.replace('http:', 'https:'),
    own.replace(`:${port}`, ''),
    own.replace(`:${port}`, ':1'),
    own.toUpperCase(),
    `${own}, ${own}`,
    '',
  ]
}

/** The rule as the documentation states it, implemented independently of the code. */
function shouldPass(method: string, site?: string, origin?: string, csrf?: string, own?: string): boolean {
  if (origin !== undefined && origin !== own && !(origin === 'null' && site === 'same-origin')) return false
  const reads = method === 'GET' || method === 'HEAD'
  switch (site) {
    case 'same-origin':
      return true
    case 'none':
      return reads
    case undefined:
      return origin === own || csrf === '1'
    default:
      return false
  }
}

t.test('the origin rule holds for every combination of its headers', async (t) => {
  const own = 'http://localhost:3000'
  let combinations = 0
  for (const method of ['GET', 'HEAD', 'POST', 'PUT'])
    for (const site of SITES)
      for (const origin of origins(own))
        for (const csrf of CSRF) {
          const headers = { 'sec-fetch-site': site, origin, 'x-csrf': csrf }
          const expected = shouldPass(method, site, origin, csrf, own)
          combinations += 1
          if (comesFromOwnOrigin(method, headers, own) !== expected)
            t.fail(`${method} ${JSON.stringify(headers)} should ${expected ? 'pass' : 'be refused'}`)
        }
  t.equal(combinations, 4 * SITES.length * 12 * CSRF.length)
})

t.test('every route that acts for the user applies the origin rule before all other checks', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const cookie = `session=${browser.cookies.get('session')!.value}`
  const own = bff.publicUrl
  const routes: Question[] = [
    { method: 'GET', target: '/flux/a?values=1' },
    { method: 'HEAD', target: '/flux/DEMO/a?values=1' },
    { method: 'PUT', target: '/site/42', body: '{}' },
    { method: 'PUT', target: '/site/DEMO/42', body: '{}' },
    { method: 'POST', target: '/site', body: '{"siteID":42}' },
  ]
  for (const route of routes)
    for (const [site, origin, csrf] of [
      ['same-origin'],
      ['none'],
      ['cross-site', own],
      ['same-origin', 'https://evil.test'],
      [undefined, own],
      [undefined, undefined, '1'],
      [undefined, undefined, undefined],
      [undefined, `${own}.evil.test`, '1'],
    ]) {
      const passes = shouldPass(route.method!, site, origin, csrf, own)
      const fields = {
        'Content-Type': 'application/json',
        'Sec-Fetch-Site': site,
        Origin: origin,
        'X-CSRF': csrf,
      }
      const sent = Object.entries({ Cookie: cookie, ...fields }).filter(([, value]) => value !== undefined)
      const before = sandbox.journal.entries().length
      const answer = await ask(portOf(bff), { ...route, headers: sent as [string, string][] })
      const what = `${route.method} ${route.target} site=${site} origin=${origin} csrf=${csrf}`
      t.equal(answer.status, passes ? 200 : 403, what)
      t.equal(sandbox.journal.entries().length - before, passes ? 1 : 0, `${what} upstream`)
      if (!passes && route.method !== 'HEAD') t.match(problemOf(answer), { code: 'cross_origin' }, what)
      t.strictSame(
        [...answer.headers.keys()].filter((name) => name.startsWith('access-control-')),
        [],
      )
    }
  t.equal((await browser.fetch('/flux/a')).status, 200, 'the session is unchanged')

  await t.test('refusals look alike, and only the exact value of the custom header counts', async (t) => {
    const bodies = new Set<string>()
    for (const target of ['/flux/a', '/flux/NOPE/a', '/flux/!', '/flux/a?callback=x', '/flux/a?format=zip'])
      for (const value of ['', cookie]) {
        const crossing: [string, string] = ['Sec-Fetch-Site', 'cross-site']
        const answer = await ask(portOf(bff), { target, headers: [['Cookie', value], crossing] })
        t.equal(answer.status, 403, target)
        bodies.add(answer.body.replace(/"requestId":"[^"]+"/, ''))
      }
    t.equal(bodies.size, 1, 'another origin learns nothing of the target')
    for (const [name, values, status] of [
      ['x-csrf', ['1'], 401],
      ['X-CSRF', ['1', '1'], 403],
      ['X-CSRF', ['1 '], 401],
      ['X-CSRF', ['11'], 403],
      ['X-CSRF-Token', ['1'], 403],
      ['X_CSRF', ['1'], 403],
    ] as const) {
      const headers = values.map((value) => [name, value] as [string, string])
      const answer = await ask(portOf(bff), { target: '/flux/a', headers })
      t.equal(answer.status, status, `${name}: ${values}`)
    }
  })
})
