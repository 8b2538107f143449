// A headless Chromium for tests that need a real browser.

import { type Browser, chromium } from 'playwright-core'
import { type Teardown, toolPath } from './child.ts'

const ARGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--renderer-process-limit=1',
]

let running: Promise<Browser> | null = null

/**
 * A headless Chromium (`CHROMIUM_PATH`, or the installed Chromium or Chrome), closed when the test ends. All calls
 * of a process share one: `browser.newContext()` gives an empty profile; `ignoreHTTPSErrors` there accepts test
 * certificates.
 */
export async function launchChromium(t: Teardown): Promise<Browser> {
  running ??= launch()
  const browser = await running
  t.teardown(() => browser.close())
  return browser
}

async function launch(): Promise<Browser> {
  const browser = await chromium.launch({ executablePath: toolPath('chromium'), args: ARGS })
  browser.once('disconnected', () => {
    running = null
  })
  return browser
}
