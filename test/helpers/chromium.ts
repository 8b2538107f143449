// A headless Chromium for tests that need a real browser.

import { type Browser, type BrowserContext, type BrowserContextOptions, chromium } from 'playwright-core'
import { type Teardown, toolPath } from './child.ts'
import { PATIENCE_MS } from './wait.ts'

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

/** A headless Chromium (`CHROMIUM_PATH`, or the installed Chromium or Chrome), closed when the test ends. All calls of a process share one. */
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
  const browser = await chromium.launch({ executablePath, args: [...ARGS, ...args], timeout: PATIENCE_MS })
  t.teardown(() => browser.close())
  return browser
}

/** An empty profile, whose pages wait as long as the machine takes. It is closed when the test ends. */
export async function newProfile(
  t: Teardown,
  browser: Browser,
  options: BrowserContextOptions = {},
): Promise<BrowserContext> {
  const context = await browser.newContext(options)
  t.teardown(() => context.close())
  context.setDefaultTimeout(PATIENCE_MS)
  return context
}

async function launch(): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: toolPath('chromium'),
    args: ARGS,
    timeout: PATIENCE_MS,
  })
  browser.once('disconnected', () => {
    running = null
  })
  return browser
}
