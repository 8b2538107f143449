import { createServer } from 'node:http'
import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'

t.test(
  'the installed Chromium opens a page of this machine and sends Fetch Metadata to localhost',
  async (t) => {
    const seen: (string | undefined)[] = []
    const server = createServer((request, response) => {
      seen.push(request.headers['sec-fetch-mode'] as string | undefined)
      response.setHeader('content-type', 'text/html')
      response.end('<title>here</title>')
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    t.teardown(() => {
      server.closeAllConnections()
      server.close()
    })
    const address = server.address()
    const port = typeof address === 'object' ? address?.port : 0

    const browser = await launchChromium(t)
    const page = await browser.newPage()
    await page.goto(`http://localhost:${port}/`)
    t.equal(await page.title(), 'here')
    t.equal(seen[0], 'navigate')
  },
)
