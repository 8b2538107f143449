import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { showsState } from '../browser/demo.ts'
import { waitForOutput } from '../helpers/child.ts'
import { launchChromium, newProfile } from '../helpers/chromium.ts'
import { startBuilt } from '../helpers/server-process.ts'

const SIZES = [
  { width: 1280, height: 800 },
  { width: 1366, height: 768 },
  { width: 1440, height: 900 },
  { width: 390, height: 844 },
]

interface Box {
  top: number
  bottom: number
}

const boxOf = (page: Page, selector: string): Promise<Box> =>
  page.evaluate(
    `(({ top, bottom }) => ({ top, bottom }))(document.querySelector('${selector}').getBoundingClientRect())`,
  )

const browser = await launchChromium(t)

t.test('what one presses in the demo stays where it is, with its verdict above it in view', async (t) => {
  const demo = startBuilt(t, 'demo.js', { PORT: '0' })
  t.teardown(() => demo.stop('SIGTERM'))
  const open = await waitForOutput(demo, (text) => /Open +(\S+)[\s\S]*Ctrl-C/.exec(text))
  const home = open?.[1] ?? ''
  const context = await newProfile(t, browser, { reducedMotion: 'reduce' })
  const page = await context.newPage()
  await page.goto(home)
  await showsState(page, 'out')
  t.strictSame(
    await page.evaluate(`[...document.querySelectorAll('button')]
      .filter((button) => button.checkVisibility() && button.textContent === 'Sign in')
      .map(({ className }) => className)`),
    ['button primary'],
    'one way to sign in, and it is the primary one',
  )
  for (const size of SIZES) {
    await page.setViewportSize(size)
    await page.evaluate('scrollTo(0, 0)')
    const { bottom } = await boxOf(page, '[data-scenario="steal"]')
    t.ok(bottom <= size.height, `${size.width}: “Steal the tokens” is above the fold (${bottom})`)
    const intro = await page.evaluate<number>(
      `((text) => text.offsetHeight / parseFloat(getComputedStyle(text).lineHeight))(document.querySelector('.intro p'))`,
    )
    t.equal(Math.round(intro), size.width > 1_000 ? 1 : 2, `${size.width}: lines of the introduction`)
  }
  await page.locator('#sign-in').click()
  await page.locator('#use-alice').click()
  await showsState(page, 'in')
  await page.locator('#stage-held', { hasText: 'access token #1' }).waitFor()
  for (const size of SIZES) {
    await page.setViewportSize(size)
    await page.evaluate('scrollTo(0, 0)')
    for (const scenario of ['steal', 'plant', 'plant', 'copied-cookie', 'platform-down'])
      await press(t, page, scenario)
    t.strictSame(await page.evaluate(CUT), [], `${size.width}: no button is cut or reaches out of its place`)
  }
  await page.locator('#flux-id').fill('missing')
  await page.locator('#flux-read').click()
  await page.locator('#flux-problem .problem-body').waitFor()
  await page.locator('#sign-out').click()
  await showsState(page, 'out')
  t.notOk(await page.locator('#flux-problem').isVisible(), 'no words of the platform after its user has left')
  t.equal(await page.locator('#verdict').textContent(), '', 'no verdict on a session that is over')
})

/** The buttons whose text does not fit, or that reach out of their lane or card. */
const CUT = `[...document.querySelectorAll('button')]
  .filter((button) => button.checkVisibility())
  .filter((button) => {
    const place = button.closest('.lane, section, header').getBoundingClientRect()
    const { left, right } = button.getBoundingClientRect()
    return left < place.left || right > place.right || button.scrollWidth > button.clientWidth
  })
  .map(({ textContent }) => textContent)`

/** Presses a button, and looks at it and its verdict while the scenario runs and after it. */
async function press(t: Test, page: Page, scenario: string): Promise<void> {
  const button = page.locator(`[data-scenario="${scenario}"]`)
  await button.scrollIntoViewIfNeeded()
  const look = async () => ({
    button: (await boxOf(page, `[data-scenario="${scenario}"]`)).top,
    scrolled: await page.evaluate<number>('scrollY'),
  })
  const before = await look()
  const { width, height } = page.viewportSize()!
  const isShown = async (selector: string, what: string): Promise<void> => {
    const { top, bottom } = await boxOf(page, selector)
    const header = await boxOf(page, '#top')
    const notice = await boxOf(page, '#notice')
    const from = Math.max(header.bottom, notice.bottom)
    t.ok(
      top >= from && bottom <= height,
      `${width} ${scenario}: ${what} is in view (${top} to ${bottom}, below ${from})`,
    )
    t.ok(bottom <= before.button, `${width} ${scenario}: ${what} is above the buttons`)
  }
  await button.click()
  if (scenario === 'platform-down') {
    await page.locator('#notice[data-kind="outage"]').waitFor()
    t.strictSame(await look(), before, `${width} ${scenario}: nothing has moved while it runs`)
    await isShown('#outcome-progress', 'what happens')
  }
  await page.locator('#verdict[data-tone]').waitFor()
  t.strictSame(await look(), before, `${width} ${scenario}: nothing has moved`)
  await isShown('#verdict', 'the verdict')
}
