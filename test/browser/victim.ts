import type { Browser, Page } from 'playwright-core'
import type { Test } from 'tap'
import type { Passed } from '../helpers/reverse-proxy.ts'
import { readFlux, showsState, signInByHand, startHttpsDemo } from './demo.ts'
import { findLeaks } from './leaks.ts'

const APP = 'app.bff.example'
export const SESSION = '__Host-Http-session'

/** Somebody who is signed in and then opens a page of `host`; `since` tells what came from there. */
export async function signedInVictim(t: Test, browser: Browser, host: string) {
  const demo = await startHttpsDemo(t, browser, APP)
  const { reverseProxy, context } = demo
  reverseProxy.addHost(host, (request, response) => {
    if (request.url === '/set-cookies') {
      const forged = (name: string) => `${name}=forged; Domain=bff.example; Path=/; Secure; HttpOnly`
      response.setHeader('set-cookie', [SESSION, '__Host-Http-record', 'session'].map(forged))
    }
    response.setHeader('content-type', 'text/html').end('<!doctype html><title>harmless</title><body>')
  })
  const app = await context.newPage()
  await app.goto(reverseProxy.publicUrl)
  await signInByHand(app, reverseProxy.publicUrl)
  const page = await context.newPage()
  await page.goto(`https://${host}/`)
  const before = reverseProxy.passed.length
  const since = (): Passed[] =>
    reverseProxy.passed
      .slice(before)
      .filter(({ requestHeaders }) => requestHeaders['sec-fetch-site'] !== 'same-origin')
  return { demo, app, page, context, home: reverseProxy.publicUrl, since }
}

/** Nothing of what the attacker did reached the sandbox, and no secret is in the page. */
export async function platformIsUntouched(
  t: Test,
  demo: Awaited<ReturnType<typeof startHttpsDemo>>,
  page: Page,
) {
  const { journal } = demo.sandbox
  t.strictSame(journal.entries({ endpoint: 'resource' }), [], 'no call reached the platform')
  t.strictSame(journal.entries({ endpoint: 'revoke' }), [], 'nobody was signed out')
  t.strictSame(await findLeaks(demo, [page]), [])
}

/** The session lives. */
export async function stillWorks(t: Test, app: Page): Promise<void> {
  await showsState(app, 'in')
  t.equal(await readFlux(app), 200)
}
