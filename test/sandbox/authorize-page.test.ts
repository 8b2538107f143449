import { createServer } from 'node:http'
import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { authorizeUrl, CLIENT, startSandbox } from './started.ts'

t.test('a person with a phone signs in, accepts or refuses, and comes back', async (t) => {
  const client = createServer((_request, response) => response.end('back at the client'))
  const redirectUri = `http://127.0.0.1:${await listenOnLoopback(t, client)}/auth/callback`
  const sandbox = await startSandbox(t, { client: { ...CLIENT, callback: redirectUri } })
  const browser = await launchChromium(t)
  const page = await browser.newPage({ viewport: { width: 360, height: 640 } })
  const problems: string[] = []
  page.on('console', (message) => problems.push(message.text()))
  const url = authorizeUrl(sandbox, { redirect_uri: redirectUri })

  await page.goto(url)
  const width = await page.evaluate('document.documentElement.scrollWidth')
  t.ok(Number(width) <= 360, 'nothing stands out of a narrow screen')
  const accept = await page.evaluate("getComputedStyle(document.querySelector('#accept')).minHeight")
  t.equal(accept, '48px', 'the style is let through by the policy of the page')

  await page.fill('#username', 'alice')
  await page.fill('#password', 'wrong')
  await page.click('#accept')
  t.match(await page.textContent('#error'), 'wrong')
  t.equal(await page.inputValue('#username'), 'alice')

  await page.fill('#password', 'wonderland')
  await page.press('#password', 'Enter')
  await page.waitForURL(/\/auth\/callback\?code=/)

  await page.goto(url)
  await page.click('#refuse')
  await page.waitForURL(/\/auth\/callback\?error=access_denied$/)
  t.equal(
    problems.filter((text) => !text.includes('403')).join('\n'),
    '',
    'the browser found nothing wrong with the page',
  )
})
