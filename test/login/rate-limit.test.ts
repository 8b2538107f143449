import t from 'tap'
import { createRateLimit, networkOf } from '../../src/login/rate-limit.ts'

t.test('a client may start so many sign-ins a minute, and is told how long to wait', async (t) => {
  let at = 1_000_000
  const count = createRateLimit({ perMinute: 3, clock: { monotonic: () => at } })
  for (let attempt = 0; attempt < 3; attempt += 1) count('192.0.2.1')
  at += 20_000
  t.throws(() => count('192.0.2.1'), { code: 'rate_limited', status: 429, headers: { 'retry-after': '40' } })
  t.doesNotThrow(() => count('192.0.2.2'), 'another client is not held back')
  at += 40_000
  t.doesNotThrow(() => count('192.0.2.1'), 'a new minute')
})

t.test('0 sets no limit', async (t) => {
  const count = createRateLimit({ perMinute: 0, clock: { monotonic: () => 0 } })
  for (let attempt = 0; attempt < 1_000; attempt += 1) count('192.0.2.1')
  t.pass()
})

t.test('one IPv6 client is its /64 network', async (t) => {
  for (const [address, network] of [
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
    ['2001:db8:1:2::1', '2001:db8:1:2'],
    ['2001:0DB8:0001:2::', '2001:db8:1:2'],
    ['2001:db8::1', '2001:db8:0:0'],
    ['::1', '0:0:0:0'],
    ['fe80::1%eth0', 'fe80:0:0:0'],
    ['::ffff:192.0.2.7', '192.0.2.7'],
    ['192.0.2.7', '192.0.2.7'],
    ['192.0.2.7:4001', '192.0.2.7'],
    ['[2001:db8:1:2::1]:4001', '2001:db8:1:2'],
    ['[2001:db8:1:2::1]', '2001:db8:1:2'],
    ['::ffff:c000:0207', '192.0.2.7'],
    ['0:0:0:0:0:FFFF:c000:207', '192.0.2.7'],
    ['localhost', 'unknown'],
    ['', 'unknown'],
  ] as const) {
    t.equal(networkOf(address), network, address)
  }
})
