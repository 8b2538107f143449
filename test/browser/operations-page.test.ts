import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { readDeclaredOperations } from '../../sandbox/operations.ts'
import { launchChromium, newProfile } from '../helpers/chromium.ts'
import { startBff, startSandbox } from '../helpers/system.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

const browser = await launchChromium(t)

t.test('the page of examples/operations greets the user, lists fluxes and changes a site', async (t) => {
  const STATIC_DIR = t.testdir({})
  cpSync(join(ROOT, 'examples/operations'), STATIC_DIR, { recursive: true })
  const OPERATIONS_FILE = join(STATIC_DIR, 'operations.json')
  const sandbox = await startSandbox(t, { operations: readDeclaredOperations(OPERATIONS_FILE) })
  const bff = await startBff(t, sandbox, { STATIC_DIR, OPERATIONS_FILE })
  const page = await (await newProfile(t, browser)).newPage()
  await page.goto(bff.publicUrl)
  await page.click('#sign')
  await page.click('#use-alice')
  await page.waitForSelector('#fluxes a')
  t.match(await page.textContent('#greeting'), /^Hello \w+/)
  t.match(await page.textContent('#fluxes'), 'temperature')

  await page.click('#load button')
  await page.waitForSelector('#save:not([hidden])')
  t.equal(await page.inputValue('#save [name=description]'), 'Laboratory')
  await page.fill('#save [name=name]', 'Bench 1')
  await page.click('#save button')
  await page.waitForSelector('#status:has-text("Saved: Bench 1")')
  const [update] = sandbox.journal.entries().filter(({ kind }) => kind === 'UpdateSite')
  t.match(JSON.parse(String(update?.body)), { name: 'Bench 1', description: 'Laboratory', code: 'LAB-42' })
})
