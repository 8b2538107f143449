import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright-core'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import type { Teardown } from '../helpers/child.ts'
import { newProfile } from '../helpers/chromium.ts'
import {
  type ReverseProxy,
  startReverseProxy,
  startTlsReverseProxy,
  type TlsReverseProxy,
} from '../helpers/reverse-proxy.ts'
import { type Bff, CLIENT, startBff, startSandbox } from '../helpers/system.ts'

const DEMO_PAGE = fileURLToPath(new URL('../../dist/demo', import.meta.url))

export interface DemoServers<F extends ReverseProxy = ReverseProxy> {
  readonly sandbox: Sandbox
  readonly bff: Bff
  readonly reverseProxy: F
}

export interface Demo<F extends ReverseProxy = ReverseProxy> extends DemoServers<F> {
  /** The profile of one person's browser, empty at first. */
  readonly context: BrowserContext
  /** What browsers complained of on any page of that profile: errors in scripts, policies, failed loads. */
  readonly complaints: readonly string[]
}

export interface DemoOptions {
  tokenLifeSeconds?: number
  env?: Record<string, string>
}

/** The sandbox, the server with the demo page, and an empty browser profile, on `http://localhost`. */
export async function startDemo(t: Teardown, browser: Browser, options: DemoOptions = {}): Promise<Demo> {
  return await assemble(t, browser, await startReverseProxy(t), options)
}

/** The same on `https://<host>`, with TLS ended in front of the server. */
export async function startHttpsDemo(
  t: Teardown,
  browser: Browser,
  host: string,
  options: DemoOptions = {},
): Promise<Demo<TlsReverseProxy>> {
  const reverseProxy = await startTlsReverseProxy(t, host)
  const { proxy } = reverseProxy
  return await assemble(t, browser, reverseProxy, options, { proxy, ignoreHTTPSErrors: true })
}

/** The sandbox, and the server with the demo page behind this proxy. */
export async function startDemoServers<F extends ReverseProxy>(
  t: Teardown,
  reverseProxy: F,
  { tokenLifeSeconds = 3_600, env = {} }: DemoOptions = {},
): Promise<DemoServers<F>> {
  const client = { ...CLIENT, callback: `${reverseProxy.publicUrl}/registered` }
  const sandbox = await startSandbox(t, { client, tokenLifeSeconds })
  const bff = await startBff(t, sandbox, {
    PUBLIC_URL: reverseProxy.publicUrl,
    STATIC_DIR: DEMO_PAGE,
    TRUST_PROXY: '127.0.0.1/32',
    // The last tokens of a session reach the sandbox's journal by it.
    OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke`,
    ...env,
  })
  reverseProxy.forwardTo((bff.app.server.server.address() as AddressInfo).port)
  return { sandbox, bff, reverseProxy }
}

async function assemble<F extends ReverseProxy>(
  t: Teardown,
  browser: Browser,
  reverseProxy: F,
  options: DemoOptions,
  more: BrowserContextOptions = {},
): Promise<Demo<F>> {
  const servers = await startDemoServers(t, reverseProxy, options)
  // Nothing moves on its pages: animations need CPU time.
  const context = await newProfile(t, browser, { reducedMotion: 'reduce', ...more })
  const complaints: string[] = []
  context.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text())
  })
  context.on('weberror', (error) => complaints.push(String(error.error())))
  return { ...servers, context, complaints }
}

/** One more tab, on the demo page. */
export async function openTab({ context, reverseProxy }: Demo, path: string): Promise<Page> {
  const page = await context.newPage()
  await page.goto(reverseProxy.publicUrl + path)
  return page
}

/** Clicks for a flux; answers the status that came. */
export async function readFlux(page: Page): Promise<number> {
  const answered = page.waitForResponse((response) => new URL(response.url()).pathname.startsWith('/flux/'))
  await page.locator('#flux-read').click()
  const response = await answered
  await response.finished()
  return response.status()
}

/** What a person does on the sandbox's page; answers when the browser is back at `origin`. */
export async function decideOnPage(
  page: Page,
  origin: string,
  decision: 'accept' | 'refuse' = 'accept',
): Promise<void> {
  await page.locator('#username').fill('alice')
  await page.locator('#password').fill('wonderland')
  await page.locator(`#${decision}`).click()
  await page.waitForURL(`${origin}/**`)
}

/** From the signed-out demo page through the sandbox's page and back. */
export async function signInByHand(page: Page, origin: string): Promise<void> {
  await page.locator('#sign-in').click()
  await decideOnPage(page, origin)
  await showsState(page, 'in')
}

/** Waits until the demo page says whether somebody is signed in. */
export async function showsState(page: Page, state: 'in' | 'out'): Promise<void> {
  await page.locator(`#session-pill[data-state="${state}"]`).waitFor()
}
