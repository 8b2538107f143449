import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import t from 'tap'
import { decideOnPage, showsState } from '../browser/demo.ts'
import { waitForOutput } from '../helpers/child.ts'
import { launchChromium, newProfile } from '../helpers/chromium.ts'
import { startBuilt } from '../helpers/server-process.ts'

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

// WCAG 2.2, 2.5.8, without its exceptions. A radio button or checkbox has its label as a target.
const SMALL_TARGETS = `[...document.querySelectorAll('a[href], button, summary, input, textarea, select')]
  .map((target) => (/radio|checkbox/.test(target.type) ? target.closest('label') : target))
  .filter((target) => target.checkVisibility())
  .filter((target) => {
    const { width, height } = target.getBoundingClientRect()
    return width < 24 || height < 24
  })
  .map(({ outerHTML }) => outerHTML)`

const STEAL = '[aria-labelledby="steal-title"]'

const browser = await launchChromium(t)

t.test('npm run demo reaches every state of its page, and axe finds nothing in any of them', async (t) => {
  const demo = startBuilt(t, 'demo.js', { PORT: '0' })
  t.teardown(() => demo.stop('SIGTERM'))
  const open = await waitForOutput(demo, (text) => /Open +(\S+)[\s\S]*Ctrl-C/.exec(text))
  const home = open?.[1] ?? ''
  const sandboxUrl = /platform is at (\S+)/.exec(demo.output())?.[1] ?? ''
  const context = await newProfile(t, browser, { reducedMotion: 'reduce' })
  const page = await context.newPage()
  // So that no test waits long for a refresh.
  await setFaults(sandboxUrl, { tokenLifeSeconds: 5 })

  /**
   * The page is in this state now: axe finds nothing, and no target is too small. `part`: all that differs from the
   * states before, because axe needs most of the CPU time of this test.
   */
  const state = async (name: string, part = 'html', target = page): Promise<void> => {
    // Where the page is scrolled to, its sticky header lies over other targets.
    await target.evaluate('scrollTo(0, 0)')
    t.strictSame(await target.evaluate<string[]>(SMALL_TARGETS), [], `${name}: 24 by 24 pixels`)
    if (!(await target.evaluate('"axe" in window'))) await target.evaluate(AXE)
    const violations = await target.evaluate<string[]>(`axe.run(${JSON.stringify(part)}, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
      resultTypes: ['violations'],
    }).then(({ violations }) => violations.map(({ id, nodes }) => id + ' ' + nodes.map(({ html }) => html).join(' ')))`)
    t.strictSame(violations, [], name)
  }

  await page.goto(`${home}/?tab=7`)
  await showsState(page, 'out')
  await state('signed-out')
  t.equal(await page.locator('[data-scenario][aria-disabled="true"]').count(), 7)
  t.match(await page.locator('#outcome-claim').textContent(), /^Sign in first\./)

  await page.locator('#flux-read').click()
  await page.locator('#flux-problem .problem-code', { hasText: 'login_required' }).waitFor()
  const steal = page.locator('[data-scenario="steal"]')
  const plant = page.locator('[data-scenario="plant"]')
  const found = (tone: string, text: string) =>
    page.locator(`#verdict[data-tone="${tone}"]`, { hasText: text }).waitFor()
  await steal.click()
  await found('good', '0 tokens found')
  await plant.click()
  await found('bad', 'localStorage')
  await state('token-planted', STEAL)
  await plant.click()
  await found('good', '0 tokens found')

  await page.locator('#site-name').fill('half-typed')
  await page.locator('#sign-in').click()
  await page.locator('#use-alice').waitFor()
  await state('platform-sign-in')
  await page.locator('#username').fill('alice')
  await page.locator('#password').fill('wrong')
  await page.locator('#accept').click()
  await page.locator('#error').waitFor()
  await state('platform-wrong-password')
  await page.locator('#refuse').click()
  await page.locator('#notice[data-kind="sign-in"]', { hasText: 'You refused access' }).waitFor()
  t.equal(page.url(), `${home}/?tab=7`)
  t.equal(
    await page.locator('#site-name').inputValue(),
    'half-typed',
    'what was typed is kept over a sign-in',
  )
  await state('refused')

  await page.locator('#sign-in').click()
  await page.locator('#use-alice').click()
  await showsState(page, 'in')
  // The page reads once by itself, so that the sandbox learns which session it shows.
  await page.locator('#stage-held', { hasText: 'access token #1' }).waitFor()
  await page.locator('#flux-chart polyline.line').waitFor()
  t.match(await page.locator('#session-pill').textContent(), 'Signed in as alice')
  const exact = (await page.locator('#flux-exact-rows').textContent()) ?? ''
  const integer = /\d{16}/.exec(exact)?.[0] ?? ''
  t.not(String(Number(integer)), integer, 'an integer that JavaScript would change is shown')
  await state('signed-in')

  const line = page.locator('#stage-refresh', { hasText: /This browser took no part/ })
  const [, from, to] = /#(\d+) by #(\d+)/.exec((await line.textContent()) ?? '') ?? []
  // A page that was busy may have missed one.
  t.ok(Number(to) > Number(from), 'a newer token')
  await state('token-replaced', '#stage')
  // From here on a slow machine must not meet a token that has just expired.
  await setFaults(sandboxUrl, { tokenLifeSeconds: 20 })

  await steal.click()
  await found('good', '0 tokens found')
  t.equal(await page.locator('#steal-tries li').count(), 8)
  await state('nothing-to-steal', STEAL)
  // A leak in an answer: `fetch` is where a script would see it.
  const headers = { 'content-type': 'application/json' }
  const body = JSON.stringify({ note: `at-${'y'.repeat(43)}` })
  await setFaults(sandboxUrl, { resource: { mode: 'status', status: 200, headers, body } })
  await steal.click()
  await found('bad', 'requests of the page')
  await setFaults(sandboxUrl, { resource: { mode: 'ok' } })

  await page.locator('#site-save').click()
  await page.locator('#site-saved', { hasText: 'Saved at' }).waitFor()
  t.match(await page.locator('#site-body').textContent(), 'half-typed')
  await state('site-saved', '[aria-labelledby="site-title"]')

  const scenario = async (name: string, result: RegExp): Promise<void> => {
    await page.locator(`[data-scenario="${name}"]`).click()
    if (name === 'platform-down') {
      await page.locator('#notice[data-kind="outage"]', { hasText: 'You are still signed in' }).waitFor()
      await state('platform-down-during')
    } else if (name === 'token-endpoint-down') {
      const text = 'gives no new token (503). The server tries again.'
      await page.locator('#stage-refresh[data-tone="warn"]', { hasText: text }).waitFor()
      await state('refresh-fails', '#stage')
    }
    const text = page.locator(`#outcome[data-result="${name}"] #verdict[data-tone]`)
    await text.waitFor()
    t.match(await text.textContent(), result, name)
    const tone = name === 'copied-cookie' ? 'plain' : 'good'
    t.equal(await text.getAttribute('data-tone'), tone, `${name}: what was to be expected`)
  }
  await scenario('copied-cookie', /read your data \(200\): this browser is not bound/)
  await scenario('platform-down', /[1-9]\d* failed: .* \(upstream_unavailable\).*\. Still signed in\.$/)
  await setFaults(sandboxUrl, { tokenLifeSeconds: 14 })
  await scenario('expired', /^1 read answered, none failed\. Still signed in\.$/)
  // With a token of 5 seconds a slow machine could ask again too late.
  await scenario('answer-lost', /none failed\. Still signed in\.$/)
  await scenario('crowd', /^100 answers\. .* Still signed in\.$/)
  await setFaults(sandboxUrl, { tokenLifeSeconds: 5 })
  await scenario('token-endpoint-down', /\(authorization_server_unavailable\)\. Still signed in\.$/)
  await state('scenario-over', '#attacks')

  await scenario('revoked', /Signed out\.$/)
  await page.locator('#notice[data-kind="ended"]', { hasText: 'access was withdrawn' }).waitFor()
  t.equal(await page.locator('#flux-body').textContent(), '', 'the data is off the page')
  await state('ended')

  const tab = await context.newPage()
  for (const [name, path] of [
    ['fault-callback', '/auth/callback/nothing?code=x'],
    ['fault-unknown', '/auth/nothing'],
    ['fault-flux', '/flux/temperature'],
  ] as const) {
    await tab.goto(home + path)
    await state(name, 'html', tab)
  }
  await tab.goto(`${sandboxUrl}/`)
  await state('platform-start', 'html', tab)
  await tab.close()

  await page.locator('#notice-action').click()
  await decideOnPage(page, home)
  await showsState(page, 'in')

  // WCAG 2.2 AA, which axe cannot see.
  await page.setViewportSize({ width: 320, height: 640 })
  t.equal(await page.evaluate('document.documentElement.scrollWidth'), 320, 'nothing scrolls sideways')
  await page.locator('#sign-out').click()
  await showsState(page, 'out')
  t.equal(await page.evaluate('document.activeElement.id'), 'sign-in', 'the focus is where one goes on')
  t.equal((await demo.stop('SIGTERM')).code, 0)
  await page.locator('#notice[data-kind="server"]', { hasText: 'cannot be reached' }).waitFor()
  await state('server-stopped', '#top')
})

async function setFaults(sandboxUrl: string, faults: object): Promise<void> {
  const headers = { 'content-type': 'application/json' }
  const body = JSON.stringify(faults)
  const answer = await fetch(`${sandboxUrl}/_sandbox/faults`, { method: 'POST', headers, body })
  if (!answer.ok) throw new Error(await answer.text())
}
