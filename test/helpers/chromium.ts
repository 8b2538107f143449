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

/**
 * A Chromium of its own with Device Bound Session Credentials, whose keys are software. It accepts certificates of these
 * public keys (SHA-256, base64) as valid: it reads nothing of the draft from a response whose certificate has an error.
 * The switches hold for Chromium 156 and may move with an update.
 */
export async function launchBindingChromium(
  t: Teardown,
  publicKeyHashes: string[],
  args: string[] = [],
): Promise<Browser> {
  const features = [
    'EnableBoundSessionCredentialsSoftwareKeysForManualTesting',
    // Without the limit of about six signatures in nine minutes.
    'DeviceBoundSessions:RefreshQuota/false',
  ]
  return await launchWhole(t, [
    `--enable-features=${features.join(',')}`,
    `--ignore-certificate-errors-spki-list=${publicKeyHashes.join(',')}`,
    ...args,
  ])
}

/** A Chromium of its own that is no headless shell, with further switches. */
export async function launchWhole(t: Teardown, args: string[] = []): Promise<Browser> {
  const executablePath = toolPath('chromium-whole')
  const browser = await chromium.launch({ executablePath, args: [...ARGS, ...args] })
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
