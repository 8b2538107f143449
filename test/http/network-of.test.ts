import t from 'tap'
import { networkOf } from '../../src/http/network-of.ts'

t.test('an IPv6 client is counted by its /64 network', async (t) => {
  for (const [address, network] of [
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
    ['', 'unknown'],
    [undefined, 'unknown'],
  ] as const) {
    t.equal(networkOf(address), network, String(address))
  }
})
