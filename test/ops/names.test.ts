import { readFileSync } from 'node:fs'
import t from 'tap'
import { startBff, startSandbox } from '../helpers/system.ts'

t.test('docs/metrics.md names exactly the served metrics', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const text = await (await fetch(`${bff.opsUrl}/metrics`)).text()
  const served = [...text.matchAll(/^# TYPE (bff_\w+) /gm)].map(([, name]) => name)
  const page = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8')
  const described = [...page.matchAll(/^\| `(bff_\w+)` \|/gm)].map(([, name]) => name)
  t.strictSame(described.sort(), served.sort())
})
