import type { Browser, Page } from 'playwright-core'
import type { Test } from 'tap'
import type { Passed } from '../helpers/front.ts'
import { findLeaks } from './leaks.ts'
import { readFlux, showsState, signInByHand, startHttpsWorld } from './world.ts'

const APP = 'app.bff.example'
export const SESSION = '__Host-Http-session'

/** Somebody who is signed in and then opens a page of `host`; `since` tells what came from there. */
export async function signedInVictim(t: Test, browser: Browser, host: string) {
  const world = await startHttpsWorld(t, browser, APP)
  const { front, context } = world
  front.addHost(host, (request, response) => {
    if (request.url === '/set-cookies') {
      const forged = (name: string) => `${name}=forged; Domain=bff.example; Path=/; Secure; HttpOnly`
      response.setHeader('set-cookie', [SESSION, '__Host-Http-record', 'session'].map(forged))
    }
    response.setHeader('content-type', 'text/html').end('<!doctype html><title>harmless</title><body>')
  })
  const app = await context.newPage()
  await app.goto(front.publicUrl)
  await signInByHand(app, front.publicUrl)
  const page = await context.newPage()
  await page.goto(`https://${host}/`)
  const before = front.passed.length
  const since = (): Passed[] =>
    front.passed
      .slice(before)
      .filter(({ requestHeaders }) => requestHeaders['sec-fetch-site'] !== 'same-origin')
  return { world, app, page, context, home: front.publicUrl, since }
}

/** The session lives, the sandbox was not called, and the site is as it was. */
export async function nothingHappened(
  t: Test,
  world: Awaited<ReturnType<typeof startHttpsWorld>>,
  page: Page,
) {
  const { sandbox, front } = world
  t.strictSame(sandbox.journal.entries({ endpoint: 'resource' }), [], 'no call reached the platform')
  t.strictSame(sandbox.journal.entries({ endpoint: 'revoke' }), [], 'nobody was signed out')
  t.strictSame(await findLeaks(world, [page]), [])
  const own = await page.context().newPage()
  await own.goto(front.publicUrl)
  await showsState(own, 'in')
  t.equal(await readFlux(own), 200)
}
