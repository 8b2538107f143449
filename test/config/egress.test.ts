import t from 'tap'
import { proxyFor } from '../../src/config/egress.ts'
import { configOf, type Env, faultsOf, warningsOf } from './environment.ts'

const PROXIES = { HTTPS_PROXY: 'http://secure.proxy:3128', HTTP_PROXY: 'plain.proxy:8080' }

/** The host of the proxy for this URL, or null. */
function hostFor(env: Env, url: string): string | null {
  return proxyFor(configOf(env).egress, url)?.host ?? null
}

t.test('the scheme of the target chooses the proxy, and lower case goes before upper case', async (t) => {
  t.strictSame(configOf({}).egress, { https: null, http: null, exempt: [] })
  t.equal(hostFor({}, 'https://api.example'), null)
  t.equal(hostFor(PROXIES, 'https://api.example'), 'secure.proxy')
  t.equal(hostFor(PROXIES, 'http://api.example'), 'plain.proxy')
  t.equal(hostFor({ HTTP_PROXY: 'plain.proxy' }, 'https://api.example'), null)
  t.equal(hostFor({ ...PROXIES, https_proxy: 'http://lower' }, 'https://api.example'), 'lower')
  t.equal(hostFor({ ...PROXIES, no_proxy: '*' }, 'https://api.example'), null)
  t.equal(hostFor({ HTTPS_PROXY: '' }, 'https://api.example'), null)
  const lower = { https_proxy: 'http://a', http_proxy: 'http://b', no_proxy: 'c' }
  t.strictSame(warningsOf(lower), [], 'and is no misspelling')
})

t.test('a proxy is given by host and port, with TLS and credentials where the URL has them', async (t) => {
  const read = (text: string) => {
    const { tls, host, port, authorization } = configOf({ HTTPS_PROXY: text }).egress.https!
    return [tls, host, port, authorization?.reveal() ?? null]
  }
  const pair = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`
  t.strictSame(read('http://proxy.example:3128'), [false, 'proxy.example', 3128, null])
  t.strictSame(read('http://proxy.example/'), [false, 'proxy.example', 80, null])
  t.strictSame(read('https://proxy.example'), [true, 'proxy.example', 443, null])
  t.strictSame(read('proxy.example:3128'), [false, 'proxy.example', 3128, null])
  t.strictSame(read('http://[::1]:3128'), [false, '::1', 3128, null])
  t.strictSame(read('http://me:p%40ss%25@proxy:1'), [false, 'proxy', 1, pair('me:p@ss%')])
  t.strictSame(read('http://token@proxy:1'), [false, 'proxy', 1, pair('token:')])
})

t.test('a faulty proxy URL is a fault that names its variable and prints nothing of it', async (t) => {
  for (const text of [
    'socks5://me:pa55word@proxy:1080',
    'http://me:pa55word@',
    'http://me:pa55/word@proxy',
    'http://me:pa55word@proxy/path',
    'http://me:pa55word@proxy:99999',
    'http://me:pa55word@proxy:0',
    'http://me:pa55word%@proxy',
    'http://me:pa55word@pro xy',
    'http://me:pa55word@proxy?x',
  ]) {
    for (const name of ['HTTPS_PROXY', 'HTTP_PROXY']) {
      const faults = faultsOf({ [name]: text })
      t.equal(faults.length, 1, text)
      t.ok(faults[0]?.startsWith(`${name} `), name)
      t.notMatch(faults.join(), /pa55|me:|@proxy|socks/)
    }
  }
})

t.test('NO_PROXY exempts hosts, domains, ports, addresses and networks', async (t) => {
  const exempts = (list: string, url: string) => hostFor({ ...PROXIES, NO_PROXY: list }, url) === null
  const api = 'https://api.example'
  const yes: Record<string, string[]> = {
    [api]: [
      ...'* api.example API.Example example .example .api.example *.example api.example:443'.split(' '),
      ...['other, api.example', 'other api.example'],
    ],
    'https://api.example:8443': ['api.example:8443'],
    'http://127.0.0.1:4000': ['127.0.0.1', '127.0.0.1:4000', '127.0.0.0/8'],
    'http://[::1]:4000': ['::1', '[::1]:4000', '0:0:0:0:0:0:0:1'],
    'https://[fd12::1]': ['fd00::/8'],
  }
  for (const [url, lists] of Object.entries(yes))
    for (const list of lists) t.ok(exempts(list, url), `${list} exempts ${url}`)
  const no: Record<string, string[]> = {
    [api]: ['', ...'pi.example api.example.com www.api.example api.example:80 <local>'.split(' ')],
    'https://api.example:8443': ['api.example:443'],
    'http://127.0.0.1': ['0.0.1', '10.0.0.0/8', '127.0.0.0/99', '::/0'],
  }
  for (const [url, lists] of Object.entries(no))
    for (const list of lists) t.notOk(exempts(list, url), `${list} does not exempt ${url}`)
})
