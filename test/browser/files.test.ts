import { createServer } from 'node:http'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import t from 'tap'
import { launchChromium, newProfile } from '../helpers/chromium.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { decideOnPage } from './demo.ts'

const browser = await launchChromium(t)

/** Leaves a mark wherever it runs: the title of its document, a message to the page around it or to that of a worker. */
const MARK = `globalThis.document ? (document.title = 'ran', parent.postMessage('ran', '*')) : postMessage('ran')`
const HTML = `<!doctype html><title>x</title><body onload="${MARK}"><script>${MARK}</script>`
const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><title>x</title><script>${MARK}</script></svg>`
const XHTML = `<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head><body><script>${MARK}</script></body></html>`
const SHEET = `<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/"><html><head><title>x</title></head><body><script>${MARK}</script></body></html></xsl:template></xsl:stylesheet>`

interface File {
  type: string
  body: string
  /** How the mark is left where nothing protects the origin; absent where browsers differ. */
  runs?: 'opened' | 'script' | 'never'
  /** The browser saves it where it would show others. */
  isSaved?: true
}

const FILES: Readonly<Record<string, File>> = {
  page: { type: 'text/html', body: HTML, runs: 'opened' },
  xhtml: { type: 'application/xhtml+xml', body: XHTML, runs: 'opened' },
  picture: { type: 'image/svg+xml', body: SVG, runs: 'opened' },
  'xml-of-html': { type: 'application/xml', body: XHTML, runs: 'opened' },
  'text-xml': { type: 'text/xml; charset=utf-8', body: XHTML, runs: 'opened' },
  // Browsers are giving up XSLT.
  styled: { type: 'application/xml', body: `<?xml-stylesheet type="text/xsl" href="sheet"?><x/>` },
  sheet: { type: 'text/xsl', body: SHEET },
  script: { type: 'text/javascript', body: MARK, runs: 'script' },
  'lying-picture': { type: 'image/png', body: HTML, runs: 'never' },
  'lying-json': { type: 'application/json', body: HTML, runs: 'never' },
  'script-as-text': { type: 'text/plain', body: MARK, runs: 'script' },
  'script-as-data': { type: 'application/octet-stream', body: MARK, runs: 'script', isSaved: true },
  untyped: { type: '', body: HTML },
}

const OPERATIONS = JSON.stringify({
  operations: {
    GetFile: { method: 'GET', path: '/{wac}/files/{fileId}', parameters: { fileId: 'id' }, formats: 'any' },
  },
})

t.test(
  'no script of a file runs on the origin of the server, however it is opened or included',
  async (t) => {
    const upstream = createServer((request, response) => {
      const id = String(request.url?.split('?')[0]?.split('/').at(-1))
      if (id === 'empty')
        return response.writeHead(200, { 'content-type': 'text/html' }).end('<title>x</title>')
      const { type = '', body = '' } = FILES[id] ?? {}
      response.writeHead(200, type === '' ? {} : { 'content-type': type }).end(body)
    })
    const base = `http://127.0.0.1:${await listenOnLoopback(t, upstream)}`
    const sandbox = await startSandbox(t)
    const folder = t.testdir({
      'operations.json': OPERATIONS,
      page: { 'index.html': '<!doctype html><title>own</title><p>own' },
    })
    const bff = await startBff(t, sandbox, {
      ...{ BASE_URL: base, OAUTH_SCOPE: sandbox.baseUrl, OPERATIONS_FILE: join(folder, 'operations.json') },
      // As a page that includes files in every way.
      ...{
        STATIC_DIR: join(folder, 'page'),
        STATIC_CSP: "frame-src 'self'; object-src 'self'; worker-src 'self'",
      },
    })
    const page = await (await newProfile(t, browser, { acceptDownloads: true })).newPage()
    await page.goto(`${bff.publicUrl}/auth/login`)
    await decideOnPage(page, bff.publicUrl)
    const ours = `${bff.publicUrl}/data/DEMO/files/`
    const bare = `${base}/DEMO/files/`

    for (const [name, file] of Object.entries(FILES)) {
      const { runs } = file
      if (runs !== undefined) {
        const marks = await marksOf(page, { home: `${bare}empty`, address: bare + name, file })
        t.equal(
          marks.includes(runs === 'script' ? 'script' : 'opened'),
          runs !== 'never',
          `${name}: the control`,
        )
      }
      t.strictSame(await marksOf(page, { home: bff.publicUrl, address: ours + name, file }), [], name)
    }
    t.match(bff.log(), /"operation":"GetFile".*"status":200/)
  },
)

t.test('a page shows a picture, offers a download and reads a file', async (t) => {
  const PNG = Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAYAAAC56t6BAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    'base64',
  )
  const upstream = createServer((request, response) => {
    if (request.url?.includes('plan'))
      return response.writeHead(200, { 'content-type': 'application/zip' }).end('a plan')
    response.writeHead(200, { 'content-type': 'image/png' }).end(PNG)
  })
  const sandbox = await startSandbox(t)
  const folder = t.testdir({
    'operations.json': OPERATIONS,
    page: {
      'index.html': `<!doctype html><title>own</title><img src="/data/DEMO/files/7f3a" alt="">
        <a href="/data/DEMO/files/7f3a" download="p.png">Picture</a> <a href="/data/DEMO/files/plan">Plan</a>`,
    },
  })
  const bff = await startBff(t, sandbox, {
    ...{ BASE_URL: `http://127.0.0.1:${await listenOnLoopback(t, upstream)}`, OAUTH_SCOPE: sandbox.baseUrl },
    ...{ OPERATIONS_FILE: join(folder, 'operations.json'), STATIC_DIR: join(folder, 'page') },
  })
  const page = await (await newProfile(t, browser, { acceptDownloads: true })).newPage()
  await page.goto(`${bff.publicUrl}/auth/login`)
  await decideOnPage(page, bff.publicUrl)
  await page.waitForFunction('document.images[0].complete')
  t.strictSame(
    await page.evaluate('[document.images[0].naturalWidth, document.images[0].naturalHeight]'),
    [2, 3],
  )
  for (const [link, name] of [
    ['Picture', 'p.png'],
    ['Plan', /plan/],
  ] as const) {
    const downloading = page.waitForEvent('download')
    await page.click(`text=${link}`)
    const download = await downloading
    t.match(download.suggestedFilename(), name)
    t.equal(await download.failure(), null)
  }
  const read = "fetch('/data/DEMO/files/7f3a').then(async (r) => [r.status, (await r.blob()).type, r.url])"
  t.match(await page.evaluate(read), [200, 'image/png'])
})

/** The ways in which a file leaves its mark: included in a page of `home` as each of these, and opened on its own. */
async function marksOf(
  page: Page,
  { home, address, file }: { home: string; address: string; file: File },
): Promise<string[]> {
  await page.goto(home)
  // Nothing tells a page that a frame was saved.
  const ways = ['img', 'script', 'module', 'worker', ...(file.isSaved ? [] : ['iframe', 'object'])]
  const marks: string[] = []
  for (const way of ways) if (await page.evaluate(included(way, address))) marks.push(way)
  if (file.isSaved) return marks
  await page.goto(address)
  if ((await page.title()) === 'ran') marks.push('opened')
  return marks
}

/** An expression for the page: whether the file leaves its mark there, included in this way. */
function included(way: string, file: string): string {
  return `(async (way, file) => {
    let ran = false
    const note = ({ data }) => { ran ||= data === 'ran' }
    addEventListener('message', note)
    await new Promise((resolve) => {
      if (way === 'worker') {
        const worker = new Worker(file)
        worker.onmessage = (event) => resolve(note(event))
        worker.onerror = resolve
        return
      }
      const element = document.createElement(way === 'module' ? 'script' : way)
      if (way === 'module') element.type = 'module'
      element.onload = element.onerror = resolve
      element[way === 'object' ? 'data' : 'src'] = file
      document.body.append(element)
    })
    // A message of a frame comes after its load at the latest.
    await new Promise((resolve) => setTimeout(resolve))
    removeEventListener('message', note)
    const isMarked = ran || document.title === 'ran'
    document.title = 'x'
    return isMarked
  })(${JSON.stringify(way)}, ${JSON.stringify(file)})`
}
