import { readFileSync } from 'node:fs'
import t from 'tap'
import { startBff, startSandbox } from '../helpers/system.ts'

t.test('the server sends the browser client that fits it, with its types', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  for (const [path, file, type] of [
    ['/auth/client.js', 'bff-client.js', 'text/javascript; charset=utf-8'],
    ['/auth/client.d.ts', 'bff-client.d.ts', 'text/plain; charset=utf-8'],
  ] as const) {
    const { status, headers, text } = await bff.browser().fetch(path)
    t.equal(status, 200)
    t.equal(headers['content-type'], type)
    t.equal(headers['cache-control'], 'no-cache', 'browsers ask whether it is the newest')
    t.equal(text, readFileSync(new URL(`../../dist/client/${file}`, import.meta.url), 'utf8'))
    const again = await bff.browser().fetch(path, { headers: { 'if-none-match': String(headers.etag) } })
    t.equal(again.status, 304)
    t.equal(again.text, '')
  }
})
