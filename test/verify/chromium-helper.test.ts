import { createServer } from 'node:http'
import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { listenOnLoopback } from '../helpers/ports.ts'

t.test(
  'the installed Chromium opens a page of this machine and sends Fetch Metadata to localhost',
  async (t) => {
    const seen: (string | undefined)[] = []
    const server = createServer((request, response) => {
      seen.push(request.headers['sec-fetch-mode'] as string | undefined)
      response.setHeader('content-type', 'text/html')
      response.end('<title>here</title>')
    })
    const port = await listenOnLoopback(t, server)

    const browser = await launchChromium(t)
    const page = await browser.newPage()
    await page.goto(`http://localhost:${port}/`)
    t.equal(await page.title(), 'here')
    t.equal(seen[0], 'navigate')
  },
)
