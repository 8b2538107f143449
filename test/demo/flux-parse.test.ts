import t from 'tap'
import { type FluxFormat, parseFlux } from '../../demo/page/flux-parse.ts'
import { fluxAt, renderFlux } from '../../sandbox/flux.ts'

const EXPECTED = {
  name: 'Outside, "north" {1}',
  unit: '°C',
  points: [
    { time: Date.UTC(2026, 0, 2, 3, 0, 0, 123), value: 4.5 },
    { time: Date.UTC(2026, 0, 2, 4), value: -1 },
    { time: Date.UTC(2026, 0, 2, 5), value: 12 },
  ],
}

const BODIES: Record<FluxFormat, string> = {
  JSON: JSON.stringify({
    wType: 'Flux',
    id: 7,
    name: 'Outside, "north" {1}',
    unit: '°C',
    creationDate: '2020-01-01T00:00:00.0000000Z',
    values: [
      { date: '2026-01-02T03:00:00.1234567Z', value: 4.5 },
      { date: '2026-01-02T05:00:00.0000000Z', value: 12 },
      { date: '2026-01-02T04:00:00.0000000Z', value: -1 },
    ],
  }),
  XML: `<?xml version="1.0" encoding="utf-8"?>
    <Flux xmlns="http://schemas.example/types" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">
      <!-- a comment with <markup> in it -->
      <creationDate>2020-01-01T00:00:00.0000000Z</creationDate><id>7</id>
      <name>Outside, &quot;north&quot; &#x7B;1}</name><unit><![CDATA[°C]]></unit><nothing i:nil="true"/>
      <values>
        <Value><date>2026-01-02T03:00:00.1234567Z</date><value>4.5</value></Value>
        <Value date='2026-01-02T05:00:00Z' value="12"/>
        <Value><date>2026-01-02T04:00:00.0000000Z</date><value>-1</value></Value>
      </values>
    </Flux>`,
  CSV: [
    '\ufeffid,name,unit,date,value',
    '7,"Outside, ""north"" {1}",°C,2026-01-02T03:00:00.1234567Z,4.5',
    '7,"Outside, ""north"" {1}",°C,2026-01-02T05:00:00.0000000Z,12',
    '7,"Outside, ""north"" {1}",°C,2026-01-02T04:00:00.0000000Z,-1',
    '',
  ].join('\r\n'),
  JSV: [
    '{wType:Flux,id:7,name:"Outside, ""north"" {1}",unit:°C,creationDate:2020-01-01T00:00:00.0000000Z,',
    'tags:[],parent:{},values:[{date:2026-01-02T03:00:00.1234567Z,value:4.5},',
    '{date:"2026-01-02T05:00:00.0000000Z",value:12},{date:2026-01-02T04:00:00.0000000Z,value:-1}]}',
  ].join(''),
}

for (const format of ['JSON', 'XML', 'CSV', 'JSV'] as const) {
  t.test(`a series in ${format} is read with its name and unit, in order of time`, async (t) => {
    t.same(parseFlux(format, BODIES[format]), EXPECTED)
  })

  t.test(`a text that is not ${format} is refused`, async (t) => {
    const broken = { JSON: '{"a":', XML: '<a><b></a>', CSV: 'a,b\n"open', JSV: '{a:[1,2}' }
    t.throws(() => parseFlux(format, broken[format]), SyntaxError)
  })
}

t.test('the shapes in which times and values are commonly written are found', async (t) => {
  const point = [{ time: Date.UTC(2023, 10, 14, 22, 13, 20), value: 3 }]
  const bodies = [
    '[[1700000000000, 3]]',
    '[[1700000000, "3"]]',
    '{"data":{"items":[{"timestamp":"2023-11-14T22:13:20Z","id":5,"v":3}]}}',
    '{"points":[{"Date":"/Date(1700000000000+0000)/","quality":100,"Value":3}]}',
    '{"x":[{"when":"2023-11-14 22:13:20","temperature":3}]}',
    '{"x":[{"at":"2023-11-14T23:13:20+01:00","value":3}]}',
  ]
  for (const body of bodies) t.same(parseFlux('JSON', body).points, point, body)
})

t.test('a body without time-stamped numbers yields no points', async (t) => {
  for (const body of [
    'null',
    '[]',
    '{"values":[]}',
    '{"values":[1,2,3]}',
    '{"date":"2023-11-14T22:13:20Z"}',
  ]) {
    t.same(parseFlux('JSON', body).points, [], body)
  }
  t.same(parseFlux('CSV', '').points, [])
  t.same(parseFlux('CSV', 'date,value\r\n').points, [])
  t.same(parseFlux('JSV', '{values:[]}').points, [])
  t.same(parseFlux('XML', '<Flux><values/></Flux>').points, [])
})

t.test('a single value in XML is a series of one', async (t) => {
  const body = '<Flux><values><V><d>2023-11-14T22:13:20Z</d><v>3</v></V></values></Flux>'
  t.same(parseFlux('XML', body).points, [{ time: 1_700_000_000_000, value: 3 }])
})

t.test('twenty thousand values are read', async (t) => {
  const values = Array.from({ length: 20_000 }, (_, i) => `<V><d>2023-11-14T22:13:20Z</d><v>${i}</v></V>`)
  const { points } = parseFlux('XML', `<Flux>${values.join('')}</Flux>`)
  t.equal(points.length, 20_000)
})

t.test('the series of the sandbox platform is read alike in all four formats', async (t) => {
  const flux = fluxAt({ wac: 'DEMO', fluxId: 'power', count: 5, now: Date.UTC(2026, 0, 2, 3, 4, 5) })
  const expected = {
    name: 'Electric power',
    unit: 'kW',
    points: flux.values.map(({ date, value }) => ({ time: Date.parse(date), value: Number(value) })),
  }
  for (const format of ['JSON', 'XML', 'CSV', 'JSV'] as const) {
    t.same(parseFlux(format, renderFlux(flux, format)), expected, format)
  }
})
