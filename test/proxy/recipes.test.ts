import { writeFileSync } from 'node:fs'
import t from 'tap'
import { readDeclaredOperations } from '../../sandbox/operations.ts'
import { codeBlocks } from '../helpers/documentation.ts'
import { signedIn } from '../helpers/shared.ts'
import { makeFolder } from '../helpers/watchdog.ts'

interface Recipe {
  /** What the page calls. */
  asks: readonly [call: string, body?: object]
  /** What reaches the platform. */
  sends: readonly [call: string, body?: object]
  /** Of a page without a session; 401 unless said otherwise. */
  anonymous?: number
}

/** By the headings of docs/operations.md. */
const RECIPES: Readonly<Record<string, Recipe>> = {
  'List resources page by page': {
    asks: ['GET /data/DEMO/Infrastructure/Zone?skip=200&take=200'],
    sends: ['GET /DEMO/Infrastructure/Zone?format=JSON&skip=200&take=200'],
  },
  'Read one resource': {
    asks: ['GET /data/DEMO/Infrastructure/Site/42'],
    sends: ['GET /DEMO/Infrastructure/Site/42?format=JSON'],
  },
  'Choose from fixed words': {
    asks: ['GET /data/DEMO/Point/7/hour?order=down'],
    sends: ['GET /DEMO/Point/7/hour?format=JSON&order=down'],
  },
  'Download as CSV': {
    asks: ['GET /data/DEMO/Point/export'],
    sends: ['GET /DEMO/Point/export?format=CSV'],
  },
  'Read reference data without a user': {
    asks: ['GET /data/WUM'],
    sends: ['GET /WUM?format=JSON'],
    anonymous: 200,
  },
  'Create a resource': {
    asks: ['POST /data/DEMO/Infrastructure/Zone', { name: 'Hall 2' }],
    sends: [
      'POST /DEMO/Infrastructure/Zone?format=JSON',
      { name: 'Hall 2', wType: 'CreateZone', wac: 'DEMO' },
    ],
  },
  'Name the account in the body': {
    asks: ['POST /data/json/reply/SendMessage', { text: 'Hello', wac: 'ACME' }],
    sends: ['POST /json/reply/SendMessage?format=JSON', { text: 'Hello', wac: 'ACME', wType: 'SendMessage' }],
  },
  'Delete a resource': {
    asks: ['DELETE /data/DEMO/Message/7'],
    sends: ['DELETE /DEMO/Message/7?format=JSON'],
  },
}

t.test('each recipe of docs/operations.md reaches the platform as declared', async (t) => {
  const blocks = codeBlocks('docs/operations.md').filter(
    ({ language, heading }) => language === 'json' && heading !== 'Declare an operation',
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
  for (const [heading, { asks, sends, anonymous = 401 }] of Object.entries(RECIPES)) {
    const [call, body] = asks
    const [method = '', target = ''] = call.split(' ')
    const headers = { 'content-type': 'application/json' }
    const options = { method, ...(body === undefined ? {} : { body: JSON.stringify(body), headers }) }
    t.equal((await bff.browser().fetch(target, options)).status, anonymous, `${heading}: without a session`)
    sandbox.journal.clear()
    t.equal((await browser.fetch(target, options)).status, 200, heading)
    const sent = sandbox.journal
      .entries()
      .map(({ method, url, body, username }) => [`${method} ${url}`, body && JSON.parse(body), username])
    t.strictSame(sent, [[sends[0], sends[1] ?? '', 'alice']], heading)
  }
})
