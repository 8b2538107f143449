import t from 'tap'
import { freeName, patternsOf } from '../../../operator/draft/pattern.ts'
import { readSample, type Sample } from '../../../operator/draft/sample.ts'

const BASE = 'https://api.example.com/v1'
const DEMO = { default: 'DEMO', allowed: null }

function patterns(paths: readonly string[], account: Parameters<typeof patternsOf>[1] = DEMO) {
  return patternsOf(
    paths.map((path) => readSample(BASE + path, BASE) as Sample),
    account,
  )
}

t.test('digits in a path become parameters, and samples that differ in them are one operation', async (t) => {
  const found = patterns([
    '/DEMO/Infrastructure/Site/42',
    '/DEMO/Infrastructure/Site/7',
    '/DEMO/wind-farms/7f3a/turbines/3/values',
    '/DEMO/Point/export',
    '/DEMO/boxes/0f8fad5b-d9cb-469f-a165-70867728950e',
    '/DEMO/boxes/12',
    '/DEMO/rooms/b2/plan',
    '/DEMO/rooms/c3/plan',
    '/DEMO/v2/things',
    '/WUM',
  ])
  t.match(
    found.map(({ path, parameters, account, noun }) => ({ path, parameters, account, noun })),
    [
      { path: '/{wac}/Infrastructure/Site/{siteId}', parameters: { siteId: 'integer' }, noun: 'Site' },
      {
        path: '/{wac}/wind-farms/{windFarmId}/turbines/{windFarmTurbineId}/values',
        parameters: { windFarmId: 'id', windFarmTurbineId: 'integer' },
        noun: 'WindFarmTurbineValues',
      },
      { path: '/{wac}/Point/export', parameters: {}, account: 'path', noun: 'Export' },
      { path: '/{wac}/boxes/{boxeId}', parameters: { boxeId: 'id' } },
      { path: '/{wac}/rooms/{roomId}/plan', parameters: { roomId: 'id' } },
      { path: '/{wac}/v2/things', parameters: {} },
      { path: '/WUM', account: 'none', noun: 'WUM' },
    ],
  )
  t.match(found[0]?.guesses, ['{siteId} is an integer, from 42'])
  t.equal(found[0]?.samples.length, 2)
})

t.test('samples that differ in the case of letters alone are one operation', async (t) => {
  const found = patterns(['/DEMO/User?Take=1', '/DEMO/user?take=2', '/DEMO/rooms/b2', '/DEMO/Rooms/B2'])
  t.match(found, [
    { path: '/{wac}/User', query: { Take: 'integer' }, samples: { length: 2 } },
    { path: '/{wac}/rooms/b2', samples: { length: 2 } },
  ])
  t.strictSame(Object.keys(found[0]?.query ?? {}), ['Take'])
})

t.test('the order of samples decides nothing about accounts', async (t) => {
  const noWac = { default: null, allowed: null }
  const pathsOf = (paths: readonly string[]) =>
    patterns(paths, noWac)
      .map(({ path, account }) => `${account} ${path}`)
      .sort()
  const samples = ['/42/Site', '/DEMO/Site', '/DEMO/Site/7', '/42/Site/8']
  t.strictSame(pathsOf(samples), [
    'none /{theId}/Site',
    'none /{theId}/Site/{siteId}',
    'path /{wac}/Site',
    'path /{wac}/Site/{siteId}',
  ])
  t.strictSame(pathsOf(samples), pathsOf(samples.toReversed()))
})

t.test(
  'the account is the first segment where WAC or WAC_ALLOWED say so, else a code in capitals',
  async (t) => {
    const path = (account: Parameters<typeof patternsOf>[1], text: string) =>
      patterns([text], account)[0]?.path
    t.equal(path({ default: 'acme', allowed: null }, '/acme/zones'), '/{wac}/zones')
    t.equal(path({ default: 'acme', allowed: null }, '/DEMO/zones'), '/DEMO/zones')
    t.equal(path({ default: null, allowed: new Set(['b']) }, '/b/zones'), '/{wac}/zones')
    t.equal(path({ default: null, allowed: null }, '/DEMO/zones'), '/{wac}/zones')
    t.equal(path({ default: null, allowed: null }, '/api/zones'), '/api/zones')
    t.match(patterns(['/DEMO/zones'], { default: null, allowed: null })[0]?.guesses, [
      'DEMO is an account code',
    ])
  },
)

t.test('parameters of the query have the type of all values that were seen', async (t) => {
  const [found] = patterns([
    '/DEMO/zones?take=10&factor=1&deep=true&search=a&id=1&id=2&format=xml&zoneId=5',
    '/DEMO/zones?take=-5&factor=2.50&deep=1&search=7&id=3',
  ])
  t.strictSame(found?.query, {
    take: 'integer',
    factor: 'number',
    deep: 'text',
    search: 'text',
    id: { list: 'integer', max: 100 },
    zoneId: 'integer',
  })
  const [ofPath] = patterns(['/DEMO/zones/5?zoneId=7'])
  t.match(ofPath, { path: '/{wac}/zones/{zoneId2}', query: { zoneId: 'integer' } })
})

t.test('each operation has a name of its own', async (t) => {
  const taken = new Set<string>()
  const name = (wish: string) => freeName(wish, taken)
  t.strictSame([name('GetZone'), name('GetZone'), name('Getzone')], ['GetZone', 'GetZone2', 'Getzone3'])
  t.match([name('X'.repeat(60)), name('X'.repeat(60))], [/^X{40}$/, /^X{39}2$/])
})

t.test('an address that cannot be declared is refused by name, without its query', async (t) => {
  for (const [address, says] of [
    [
      'https://api.example.com/v2/DEMO/zones?x=s3cret',
      /"https:\/\/api.example.com\/v2\/DEMO\/zones" is not below BASE_URL/,
    ],
    ['https://api.example.com/v1', /is not below BASE_URL/],
    ['https://api.example.com.evil.test/v1/DEMO/zones', /is not below BASE_URL/],
    ['http://api.example.com/v1/DEMO/zones', /is not below BASE_URL/],
    ['https://api.example.com/v1/../v2/zones', /is not below BASE_URL/],
    ['https://u:s3cret@api.example.com/v1/DEMO/zones', /"api.example.com" has a user name or a password/],
    [
      '/DEMO/zones?x=s3cret',
      /"\/DEMO\/zones" is no address: it must begin with https:\/\/api.example.com\/v1\//,
    ],
    ['https://api.example.com/v1/DEMO/zones/', /slash at its end/],
    ['https://api.example.com/v1/DEMO/a%20b', /the segment "a%20b"/],
    ['https://api.example.com/v1/DEMO/flux/temperature', /is GetFlux .*needs no declaration/],
  ] as const) {
    const read = readSample(address, BASE)
    t.match(read, says, address)
    t.notMatch(read, 's3cret')
  }
})
