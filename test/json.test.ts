import t from 'tap'
import { jsonFaults } from '../src/json.ts'

const faults = (text: string, maxDepth?: number): string[] => {
  JSON.parse(text)
  return [...jsonFaults(text, maxDepth)].map(({ kind, pointer }) => `${kind} ${pointer}`)
}

t.test('a member that is there twice is found, however it is written and wherever it is', async (t) => {
  t.strictSame(faults('{"a":1,"a":2}'), ['repeated /a'])
  t.strictSame(faults('{"a":1,"\\u0061":2}'), ['repeated /a'])
  t.strictSame(faults('{"x":[{}, {"a~/b":{"c":1 , "c" :{"c":3}}}]}'), ['repeated /x/1/a~0~1b/c'])
  t.strictSame(faults('{"a":1,"a":2,"a":3}'), ['repeated /a', 'repeated /a'])
  t.strictSame(faults('{"a":{"a":1},"b":[{"a":1},{"a":1}],"c":"a","A":2}'), [])
  t.strictSame(faults('{"a":"\\",\\"a\\":1","b":"{\\"b\\":[\\\\","c":"\\\\"}'), [], 'text in strings')
  t.strictSame(faults('{"":1,"":2}'), ['repeated /'])
})

t.test('a member that would change a prototype is found at any depth', async (t) => {
  t.strictSame(faults('{"__proto__":1}'), ['reserved /__proto__'])
  t.strictSame(faults('{"a":[{"constructor":{}}]}'), ['reserved /a/0/constructor'])
  t.strictSame(faults('{"\\u005f_proto__":1}'), ['reserved /__proto__'])
  t.strictSame(faults('{"a":"__proto__","b":["constructor"],"prototype":1}'), [])
})

t.test('a number that writing would change is found, and no other', async (t) => {
  for (const number of [
    ...['9007199254740992', '-9007199254740993', '1e16', '1e400', '-1e400', '0.1234567890123456', '1e-400'],
    ...['1.0000000000000001', '4.94065645841247e-324', '123456789012345.67', '1.7976931348623157e308'],
  ])
    t.strictSame(faults(`{"a":[0,${number}]}`), ['inexact /a/1'], number)
  for (const number of [
    ...['0', '-0', '1', '-1', '9007199254740991', '-9007199254740991', '1.5', '1.50', '0.1', '1e3', '1E+3'],
    ...['1e-7', '0.000123', '123456789012.345', '1.0000000000000000000', '100000000000000', '0.0'],
    ...['1.5e-300', '12e10'],
  ])
    t.strictSame(faults(`[${number}]`), [], number)
  t.strictSame(faults('"9007199254740993"'), [])
  t.strictSame(faults('1e400'), ['inexact '])
})

t.test('the depth counts objects and arrays, and ends the search', async (t) => {
  const deep = (levels: number) => `${'[{"a":'.repeat(levels / 2)}1${'}]'.repeat(levels / 2)}`
  t.strictSame(faults(deep(32), 32), [])
  t.strictSame(faults(deep(34), 32), [`deep ${'/0/a'.repeat(16)}`])
  t.equal(faults(deep(200_000), 32).length, 1)
})

t.test('a text is read in time proportional to its length', async (t) => {
  for (const part of ['"\\"",', '1,', '[],', '{"a":1},', '1.5e-3,', '"{",']) {
    const cost = (length: number) => {
      const text = `[${part.repeat(length / part.length)}1]`
      const rounds = Array.from({ length: 5 }, () => {
        const begin = process.cpuUsage()
        faults(text)
        return process.cpuUsage(begin).user
      })
      return Math.min(...rounds) + 1_000
    }
    const [short, long] = [cost(10_000), cost(500_000)]
    t.ok(long < 500 * short, `${part} ${short} and ${long} microseconds`)
  }
})
