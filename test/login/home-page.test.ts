import t from 'tap'
import { isProblem } from '../helpers/browser.ts'
import { shared } from '../helpers/shared.ts'

t.test('without STATIC_DIR a navigation to / gets a page that leads to the sign-in', async (t) => {
  const browser = (await shared()).bff.browser()
  for (const path of ['/', '/?login_error=access_denied']) {
    const page = await browser.navigate(path)
    t.equal(page.status, 200, path)
    t.match(page.text, 'href="/auth/login">Sign in</a>', path)
    t.match(page.headers.vary, 'sec-fetch-mode', path)
  }
  isProblem(t, await browser.fetch('/'), 404, 'not_found', 'a fetch')
  isProblem(t, await browser.navigate('/index.html'), 404, 'not_found', 'another path')
})
