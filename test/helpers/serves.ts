import type { Test } from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { signIn, startBff, untilReady } from './system.ts'

/** A server that is started with this environment signs a browser in, reads for it and updates for it. */
export async function serves(t: Test, sandbox: Sandbox, env: Record<string, string>): Promise<void> {
  const bff = await startBff(t, sandbox, env)
  await untilReady(bff)
  const browser = bff.browser()
  t.equal((await signIn(browser, sandbox)).status, 303, 'a sign-in')
  t.equal((await browser.fetch('/flux/temperature')).status, 200, 'a read')
  const update = { method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{"name":"A"}' }
  t.equal((await browser.fetch('/site/42', update)).status, 200, 'an update')
}
