import { format, inspect } from 'node:util'
import { serialize } from 'node:v8'
import t from 'tap'
import { Secret } from '../src/secret.ts'

const VALUE = 'hunter2-hunter2'
const secret = new Secret(VALUE)

t.test('only reveal() gives the value of a secret', async (t) => {
  t.equal(secret.reveal(), VALUE)
  const holder = { password: secret, nested: { list: [secret] }, map: new Map([[secret, secret]]) }
  const texts = {
    template: `${secret}`,
    concatenation: `x${secret}`.concat(secret as unknown as string),
    toString: secret.toString(),
    toLocaleString: secret.toLocaleString(),
    json: JSON.stringify(holder),
    inspect: inspect(holder, { depth: null, showHidden: true, getters: true }),
    inspectUncustomised: inspect(secret, { customInspect: false, showHidden: true, depth: null }),
    format: format('%s %o %O %j %d', secret, secret, secret, secret, secret),
    error: String(new Error(`refused: ${secret}`, { cause: secret })),
    errorInspected: inspect(new Error('refused', { cause: secret })),
    joined: [secret, secret].join(),
    spread: JSON.stringify({ ...secret }) + inspect({ ...secret }),
    keys: Object.getOwnPropertyNames(secret).join(),
    cloned: inspect(structuredClone(secret)),
    serialized: serialize(secret).toString('latin1'),
    query: new URLSearchParams({ secret: String(secret) }).toString(),
  }
  for (const [way, text] of Object.entries(texts)) t.notMatch(text, VALUE, way)
  for (const way of ['template', 'toString', 'json', 'inspect', 'format'] as const) {
    t.match(texts[way], '[secret]', `${way} says that there is one`)
  }
})
