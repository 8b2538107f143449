import { readFileSync } from 'node:fs'
import t from 'tap'
import { faultsSchema } from '../../sandbox/control-schemas.ts'
import { noFaults } from '../../sandbox/faults.ts'

const SWITCHES = Object.keys(noFaults(3600)).sort()

t.test('every switch can be set over HTTP', async (t) => {
  t.strictSame(Object.keys(faultsSchema.properties).sort(), SWITCHES)
})

t.test('every switch is in the documentation, and no other', async (t) => {
  const page = readFileSync(new URL('../../docs/sandbox.md', import.meta.url), 'utf8')
  const section = page.slice(page.indexOf('\n## Switches'), page.indexOf('\n### Modes'))
  const named = [...section.matchAll(/^\| `(\w+)` \|/gm)].map((match) => match[1])
  t.strictSame(named.sort(), SWITCHES)
})
