import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { decideOnPage, readFlux, showsState, startDemo } from './demo.ts'

const browser = await launchChromium(t)

t.test('in a sign-in by the token flow the token is in one request and in no address', async (t) => {
  const env = { OAUTH_FLOWS: 'code,token', ACCESS_LOG: 'off' }
  const demo = await startDemo(t, browser, { env })
  const { reverseProxy, sandbox, context } = demo
  sandbox.faults.set({ state: 'echo' })
  const page = await context.newPage()
  const seen: string[] = []
  page.on('framenavigated', (frame) => seen.push(frame.url()))
  await page.goto(`${reverseProxy.publicUrl}/auth/login?flow=token&returnTo=%2F%3Ftab%3D1`)
  await decideOnPage(page, reverseProxy.publicUrl)
  await showsState(page, 'in')
  t.equal(page.url(), `${reverseProxy.publicUrl}/?tab=1`)
  t.equal(await readFlux(page), 200)
  const bearer = sandbox.journal.entries({ endpoint: 'resource' })[0]?.headers.authorization
  const token = String(bearer).replace('Bearer ', '')
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0)

  const posted = reverseProxy.passed.filter(({ method }) => method === 'POST')
  t.strictSame(
    posted.map(({ path, status }) => [/^\/auth\/callback\/[\w-]{43}$/.test(path), status]),
    [[true, 200]],
    'one request carries the token',
  )
  for (const { url } of reverseProxy.passed) t.notMatch(url, token)
  await page.goBack()
  t.notMatch(page.url(), token)
  await page.goForward()
  t.notMatch(page.url(), token)
  t.strictSame(demo.complaints, [])
  await page.close()
})

t.test('what goes wrong in a sign-in by the token flow', async (t) => {
  const demo = await startDemo(t, browser, { env: { OAUTH_FLOWS: 'token' } })
  const { reverseProxy, context } = demo
  const page = await context.newPage()

  await t.test('a token that returns too late is still removed from the address', async (t) => {
    await page.goto(`${reverseProxy.publicUrl}/auth/login`)
    await page.locator('#username').waitFor()
    await context.clearCookies()
    await decideOnPage(page, reverseProxy.publicUrl)
    await page.getByText('This sign-in was not started in this browser').waitFor()
    t.match(page.url(), /\/auth\/callback\/[\w-]{43}$/)
    await page.getByRole('link', { name: 'Sign in' }).click()
    await page.goBack()
    t.notMatch(page.url(), '#')
    // The answer's own status is all that Chromium complains of.
    t.strictSame(
      [...new Set(demo.complaints)].filter((text) => !/status of 400/.test(text)),
      [],
    )
  })

  await t.test('the page reports a refusal and a missing fragment', async () => {
    await page.goto(`${reverseProxy.publicUrl}/auth/login?returnTo=%2Fnews`)
    await decideOnPage(page, reverseProxy.publicUrl, 'refuse')
    await page.waitForURL(`${reverseProxy.publicUrl}/news?login_error=access_denied#_`)

    const callback = new Promise<string>((resolve) => {
      page.on('request', (request) => {
        const { redirect_uri } = Object.fromEntries(new URL(request.url()).searchParams)
        if (redirect_uri !== undefined) resolve(redirect_uri)
      })
    })
    await page.goto(`${reverseProxy.publicUrl}/auth/login?returnTo=%2Fnews`)
    await page.goto(await callback)
    await page.getByText('Exactly one of the members access_token and error is expected.').waitFor()
    await page.getByRole('link', { name: 'Begin again' }).click()
    await page.waitForURL(`${demo.sandbox.url}/**`)
    await decideOnPage(page, reverseProxy.publicUrl)
    await page.waitForURL(`${reverseProxy.publicUrl}/news#_`)
  })
})
