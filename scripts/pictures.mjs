// Makes docs/demo.png and docs/demo.gif from the running demo. CI does not run it.
//
//   npm ci && npm install --no-save gifenc pngjs && node scripts/pictures.mjs
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import gifenc from 'gifenc'
import { chromium } from 'playwright-core'
import { PNG } from 'pngjs'
import { findTool } from '../test/setup/tools.mjs'

const { GIFEncoder, applyPalette, quantize } = gifenc
const SIZE = { width: 1200, height: 760 }
const COLORS = 48
const root = dirname(dirname(fileURLToPath(import.meta.url)))

const demo = spawn(process.execPath, [join(root, 'dist/demo.js')], { env: { ...process.env, PORT: '0' } })
const browser = await chromium.launch({ executablePath: findTool('chromium'), args: ['--no-sandbox'] })
try {
  const page = await browser.newPage({ viewport: SIZE, colorScheme: 'light', reducedMotion: 'reduce' })
  await page.goto(await addressOf(demo))
  const frames = []
  const take = async (delay) => frames.push({ delay, png: PNG.sync.read(await page.screenshot()) })

  await page.locator('#journey-sign-in').waitFor()
  await take(1_500)
  await page.locator('#sign-in').click()
  await page.locator('#use-alice').click()
  await page.locator('#journey .trip', { hasText: 'flux' }).first().waitFor()
  await take(1_500)
  await page.locator('#stage-read').click()
  await page.locator('#journey .trip:nth-child(2)').waitFor()
  await take(2_500)
  await page.locator('#stage-refresh', { hasText: 'took no part' }).waitFor()
  await page.locator('#stage-read').click()
  await page.waitForTimeout(1_500)
  await take(2_500)
  await page.locator('[data-scenario="steal"]').click()
  await page.locator('#verdict[data-tone="good"]').waitFor()
  writeFileSync(join(root, 'docs/demo.png'), await page.screenshot())
  await take(3_500)
  await page.locator('[data-scenario="platform-down"]').click()
  await page.locator('#notice[data-kind="outage"]').waitFor()
  await page.waitForTimeout(1_500)
  await take(2_500)
  await page.locator('#verdict[data-tone="good"]', { hasText: 'Still signed in' }).waitFor()
  await take(3_500)

  const gif = GIFEncoder()
  for (const { png, delay } of frames) {
    const palette = quantize(png.data, COLORS)
    gif.writeFrame(applyPalette(png.data, palette), png.width, png.height, { palette, delay })
  }
  gif.finish()
  writeFileSync(join(root, 'docs/demo.gif'), gif.bytes())
} finally {
  await browser.close()
  demo.kill('SIGTERM')
}

/** The address that the demo prints. */
function addressOf(child) {
  return new Promise((resolve, reject) => {
    let output = ''
    child.stdout.on('data', (chunk) => {
      output += chunk
      const open = /Open +(\S+)/.exec(output)
      if (open !== null) resolve(open[1])
    })
    child.once('exit', () => reject(new Error(output)))
  })
}
