import { writeFileSync } from 'node:fs'
import t from 'tap'
import { readDeclaredOperations } from '../../sandbox/operations.ts'
import { codeBlocks } from '../helpers/documentation.ts'
import { signedIn } from '../helpers/shared.ts'
import { makeFolder } from '../helpers/watchdog.ts'

/** What the page calls and what reaches the platform, by the headings of docs/operations.md. */
const RECIPES: Readonly<
  Record<string, readonly [asks: string, sends: string, body?: object, sent?: object]>
> = {
  'List resources page by page': [
    'GET /data/DEMO/Infrastructure/Zone?skip=200&take=200',
    'GET /DEMO/Infrastructure/Zone?format=JSON&skip=200&take=200',
  ],
  'Read one resource': [
    'GET /data/DEMO/Infrastructure/Site/42',
    'GET /DEMO/Infrastructure/Site/42?format=JSON',
  ],
  'Choose from fixed words': [
    'GET /data/DEMO/Point/7/hour?order=down',
    'GET /DEMO/Point/7/hour?format=JSON&order=down',
  ],
  'Download as CSV': ['GET /data/DEMO/Point/export', 'GET /DEMO/Point/export?format=CSV'],
  'Read reference data without a user': ['GET /data/WUM', 'GET /WUM?format=JSON'],
  'Create a resource': [
    'POST /data/DEMO/Infrastructure/Zone',
    'POST /DEMO/Infrastructure/Zone?format=JSON',
    { name: 'Hall 2' },
    { name: 'Hall 2', wType: 'CreateZone', wac: 'DEMO' },
  ],
  'Name the account in the body': [
    'POST /data/json/reply/SendMessage',
    'POST /json/reply/SendMessage?format=JSON',
    { text: 'Hello', wac: 'ACME' },
    { text: 'Hello', wac: 'ACME', wType: 'SendMessage' },
  ],
  'Delete a resource': ['DELETE /data/DEMO/Message/7', 'DELETE /DEMO/Message/7?format=JSON'],
}

/** Blocks of the page that are no recipes. Files have tests of their own. */
const OTHERS = ['Declare an operation', 'Files']

t.test('each recipe of docs/operations.md reaches the platform as declared', async (t) => {
  const blocks = codeBlocks('docs/operations.md').filter(
    ({ language, heading }) => language === 'json' && !OTHERS.includes(heading),
  )
  t.strictSame(
    blocks.map(({ heading }) => heading),
    Object.keys(RECIPES),
    'this file has a call for each',
  )
  const declared = blocks.flatMap(({ code }) => Object.entries<object>(JSON.parse(code).operations))
  const file = `${makeFolder('recipes')}/operations.json`
  writeFileSync(file, JSON.stringify({ operations: Object.fromEntries(declared) }))
  t.equal(readDeclaredOperations(file).length, declared.length, 'no two have one name')
  const { sandbox, bff, browser } = await signedIn(
    { OPERATIONS_FILE: file, OAUTH_FLOWS: 'code,client', CLIENT_FLUX_ALLOWED: 'DEMO/none' },
    { operations: readDeclaredOperations(file) },
  )
  for (const [heading, [asks, sends, body, expected = '']] of Object.entries(RECIPES)) {
    const [method = '', target = ''] = asks.split(' ')
    const headers = { 'content-type': 'application/json' }
    const options = { method, ...(body === undefined ? {} : { body: JSON.stringify(body), headers }) }
    const anonymous = heading === 'Read reference data without a user' ? 200 : 401
    t.equal((await bff.browser().fetch(target, options)).status, anonymous, `${heading}: without a session`)
    sandbox.journal.clear()
    t.equal((await browser.fetch(target, options)).status, 200, heading)
    const sent = sandbox.journal
      .entries()
      .map(({ method, url, body, username }) => [`${method} ${url}`, body && JSON.parse(body), username])
    t.strictSame(sent, [[sends, expected, 'alice']], heading)
  }
})
