import t from 'tap'
import { showsState } from '../browser/demo.ts'
import { waitForOutput } from '../helpers/child.ts'
import { launchBindingChromium, newProfile } from '../helpers/chromium.ts'
import { freePort } from '../helpers/ports.ts'
import { startTlsReverseProxy } from '../helpers/reverse-proxy.ts'
import { startBuilt } from '../helpers/server-process.ts'
import { findTool } from '../setup/tools.mjs'

const skip = findTool('chromium-whole') === null && 'needs a whole Chromium (Debian: the package chromium)'

t.test(
  'over https the demo shows that a copied cookie gets 401 where the session is bound',
  { skip },
  async (t) => {
    const reverseProxy = await startTlsReverseProxy(t, 'demo.example')
    const port = await freePort()
    reverseProxy.forwardTo(port)
    const demo = startBuilt(t, 'demo.js', { PORT: String(port), PUBLIC_URL: reverseProxy.publicUrl })
    t.teardown(() => demo.stop('SIGTERM'))
    await waitForOutput(demo, (text) => /Open +https:[\s\S]*Ctrl-C/.exec(text))
    const browser = await launchBindingChromium(t, [reverseProxy.publicKeyHash])
    const context = await newProfile(t, browser, { proxy: reverseProxy.proxy, reducedMotion: 'reduce' })
    const page = await context.newPage()
    await page.goto(reverseProxy.publicUrl)
    await page.locator('#sign-in').click()
    await page.locator('#use-alice').click()
    await showsState(page, 'in')
    await page.locator('#session-bound', { hasText: 'yes' }).waitFor()
    const copy = page.locator('[data-scenario="copied-cookie"]')
    t.equal(await copy.textContent(), 'Copy the session cookie into another browser')
    await copy.click()
    const verdict = page.locator('#verdict[data-tone="good"]')
    t.match(await verdict.textContent(), /got 401: the session is bound to this device/)
    await page.locator('#journey .trip', { hasText: 'copied cookie' }).filter({ hasText: '401' }).waitFor()
    t.equal(
      await page.locator('#session-pill').getAttribute('data-state'),
      'in',
      'its own browser is not disturbed',
    )
  },
)
