import { randomBytes } from 'node:crypto'
import t from 'tap'
import { packText, unpackText } from '../src/packed-text.ts'

const base64url = (bytes: number): string => randomBytes(bytes).toString('base64url')

t.test('a packed text is the same when it is unpacked, whatever it is', (t) => {
  const texts = [
    '',
    '{}',
    'a'.repeat(31),
    'ü€\u0000"',
    `ü${'_'.repeat(33)}ü`,
    'x'.repeat(100_000),
    '.'.repeat(70_000),
  ]
  for (let length = 28; length < 45; length += 1) texts.push('-'.repeat(length), `"${'A'.repeat(length)}"`)
  texts.push(JSON.stringify({ a: `${base64url(60)}.${base64url(301)}.${base64url(256)}`, r: base64url(40) }))
  for (const text of texts) t.equal(unpackText(packText(text)), text)
  t.end()
})

t.test('what was not packed is a text as it is', (t) => {
  t.equal(unpackText(Buffer.from('{"a":"ü"}')), '{"a":"ü"}')
  t.end()
})
