import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { readDeclaredOperations } from '../../sandbox/operations.ts'
import { cookieHeader } from '../helpers/browser.ts'
import { installPython } from '../helpers/servers/packages.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { installPackages, run, writeFiles } from './packages.ts'

/** With each type of parameter, body and format. */
const OPERATIONS = {
  ListThings: {
    ...{ method: 'GET', path: '/{wac}/things', formats: ['JSON', 'CSV'] },
    query: {
      ...{ skip: { integer: [0, 9] }, deep: 'boolean', search: 'text', order: { enum: ['up', 'down'] } },
      id: { list: 'integer', max: 3 },
    },
  },
  GetThing: { method: 'GET', path: '/{wac}/things/{thingId}', parameters: { thingId: 'integer' } },
  ExportThings: { method: 'GET', path: '/{wac}/export', formats: ['CSV'] },
  ListWUMs: { method: 'GET', path: '/WUM', account: 'none' },
  NameThing: {
    ...{ method: 'PUT', path: '/{wac}/things/{thingId}', parameters: { thingId: 'integer' } },
    body: {
      set: { wType: 'NameThing' },
      schema: {
        ...{ type: 'object', additionalProperties: false, required: ['wType', 'name'] },
        properties: {
          wType: { type: 'string' },
          name: { type: 'string' },
          floor: { type: 'integer', minimum: 0, maximum: 99 },
        },
      },
    },
  },
  SendThing: { method: 'POST', path: '/json/reply/Send', account: 'body', body: 'any' },
  RemoveThing: { method: 'DELETE', path: '/{wac}/things/{thingId}', parameters: { thingId: 'integer' } },
}

const folder = makeFolder('document')
const OPERATIONS_FILE = join(folder, 'operations.json')
const api = join(folder, 'api.json')
writeFileSync(OPERATIONS_FILE, JSON.stringify({ operations: OPERATIONS }))

const sandbox = await startSandbox(t, { operations: readDeclaredOperations(OPERATIONS_FILE) })
const env = { OPERATIONS_FILE, OAUTH_FLOWS: 'code,token,password', LOGIN_RATE_PER_MINUTE: '0' }
const bff = await startBff(t, sandbox, env)
const browser = bff.browser()
await signIn(browser, sandbox)
writeFileSync(api, (await browser.fetch('/openapi.json')).text)

// Before the first test: the runner ends where none is left while a module still loads.
const linters = await installPackages(['@stoplight/spectral-cli@6.16.3', '@redocly/cli@2.77.0'])
const python = installPython('openapi', ['openapi-spec-validator==0.9.0', 'openapi-python-client==0.29.1'])
const tester = installPython('schemathesis', ['schemathesis==4.32.5'])
const pythonBin = join(python.folder, 'bin')
const GO = `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/getkin/kin-openapi/openapi3"
)

func main() {
	document, err := openapi3.NewLoader().LoadFromFile(os.Args[1])
	if err == nil {
		err = document.Validate(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
`

/** Why Go cannot check the document; false where it can. */
async function prepareGo(place: string): Promise<string | false> {
  writeFiles(place, { 'main.go': GO })
  for (const args of [
    ['mod', 'init', 'check'],
    ['get', 'github.com/getkin/kin-openapi@v0.153.0'],
    ['mod', 'tidy'],
  ])
    if ((await run(place, 'go', args)).status !== 0)
      return `go ${args.join(' ')} fails, or Go is not installed`
  return false
}

const goFolder = makeFolder('go')
const lacksGo = await prepareGo(goFolder)

const bin = (name: string) => join(linters.folder, 'node_modules/.bin', name)

t.test('spectral and redocly find nothing', { skip: linters.lacks }, async (t) => {
  writeFiles(linters.folder, {
    'rules.json': JSON.stringify({
      extends: ['spectral:oas'],
      rules: {
        // Without `servers` a client calls the origin of its page.
        'oas3-api-servers': 'off',
        // Who is to be asked is the operator's to say.
        'info-contact': 'off',
        // A summary says it.
        'operation-description': 'off',
      },
    }),
  })
  const found = await run(linters.folder, bin('spectral'), [
    'lint',
    api,
    '--ruleset',
    'rules.json',
    '--fail-severity',
    'hint',
  ])
  t.equal(found.status, 0, found.output)
  const redocly = await run(linters.folder, bin('redocly'), [
    'lint',
    api,
    '--extends',
    'recommended',
    '--skip-rule',
    'no-empty-servers',
  ])
  t.equal(redocly.status, 0, redocly.output)
  t.notMatch(redocly.output, /\d+ warning/)
})

t.test('openapi-spec-validator finds nothing', { skip: python.lacks }, async (t) => {
  const { status, output } = await run(folder, join(pythonBin, 'openapi-spec-validator'), [api])
  t.equal(status, 0, output)
})

/** What one run of the schema tester finds, with all checks but these; null: nothing. */
async function faultsFoundBy(
  flags: readonly string[],
  { session, without = [] }: { session: string | null; without?: readonly string[] },
): Promise<string | null> {
  const config = join(folder, 'schemathesis.toml')
  const auth = session === null ? '' : `[auth.openapi.session]\napi_key = "${session}"\n`
  writeFileSync(config, `[parameters]\n"path.wac" = "DEMO"\n${auth}`)
  const program = join(tester.folder, 'bin', 'schemathesis')
  const exclude = without.length === 0 ? [] : ['--exclude-checks', without.join()]
  const { status, output } = await run(folder, program, [
    ...['--config-file', config, 'run', api, '--url', bff.publicUrl, '--no-color', '--continue-on-failure'],
    ...['--seed', '1', '--max-examples', '3', '-c', 'all', ...exclude, ...flags],
  ])
  return status === 0 ? null : output
}

const STATEFUL = ['--phases', 'stateful']
const ONE_BY_ONE = ['--phases', 'examples,coverage,fuzzing']
// What the address has, a body may only repeat, and a number must have at most 15 digits: no schema can say either.
const POSITIVE = 'positive_data_acceptance'
// A sign-out would end the session of the run, and a sign-in replace it.
const WITHOUT_AUTH = ['--exclude-path-regex', '^/auth/']

t.test('schemathesis finds nothing', { skip: tester.lacks }, async (t) => {
  // Without the sign-in that they belong to, these are 400.
  const notCallback = ['--exclude-path-regex', '^/auth/(callback|fragment)']
  t.equal(await faultsFoundBy([...ONE_BY_ONE, ...notCallback], { session: null }), null, 'signed out')
  const inSequences = [...STATEFUL, ...notCallback]
  const logged = bff.log().length
  t.equal(await faultsFoundBy(inSequences, { session: null }), null, 'signed out, in sequences')
  t.match(bff.log().slice(logged), 'login_required', 'it has called operations')
  const session = browser.cookies.get('session')!.value
  const findsNothing = async (what: string, flags: readonly string[], without: readonly string[] = []) => {
    sandbox.journal.clear()
    t.equal(await faultsFoundBy([...flags, ...WITHOUT_AUTH], { session, without }), null, what)
    t.match(
      (await browser.fetch('/auth/session')).json(),
      { authenticated: true },
      `${what}: the session lives`,
    )
    t.not(sandbox.journal.entries({ endpoint: 'resource' }).length, 0, `${what}: it was signed in`)
  }
  await findsNothing('reads', [...ONE_BY_ONE, '--include-method', 'GET'])
  const updates = [...ONE_BY_ONE, '--exclude-method', 'GET', '--exclude-method', 'HEAD']
  await findsNothing('updates', updates, [POSITIVE])
  // It replaces the faulty part of a negative case by what an earlier response had, and calls it negative still.
  await findsNothing('in sequences', STATEFUL, [POSITIVE, 'negative_data_rejection'])
})

const PYTHON = `import json, sys
from things_client import AuthenticatedClient
from things_client.api.platform import get_flux, update_site, list_things, name_thing
from things_client.models import *
url, cookie = sys.argv[1:]
from things_client import Client
client = Client(base_url=url, headers={'X-CSRF': '1', 'Cookie': cookie})
flux = get_flux.sync_detailed('temperature', client=client)
site = update_site.sync_detailed('42', client=client, body=SiteUpdate.from_dict({'name': 'Plant'}))
things = list_things.sync_detailed('DEMO', client=client)
named = name_thing.sync_detailed('DEMO', '7', client=client, body=NameThingBody.from_dict({'name': 'Pump'}))
print(json.dumps([flux.status_code, site.parsed.name, things.status_code, named.status_code]))
`

t.test(
  'openapi-python-client leaves out no operation, and its client calls the server',
  { skip: python.lacks },
  async (t) => {
    writeFiles(folder, {
      'python.json': JSON.stringify({ package_name_override: 'things_client', post_hooks: [] }),
      'use.py': PYTHON,
    })
    const args = [
      'generate',
      '--path',
      api,
      '--meta',
      'none',
      '--output-path',
      'things_client',
      '--config',
      'python.json',
      '--fail-on-warning',
    ]
    const generated = await run(folder, join(pythonBin, 'openapi-python-client'), args)
    t.equal(generated.status, 0, generated.output)
    const { output } = await run(folder, join(pythonBin, 'python'), [
      'use.py',
      bff.publicUrl,
      cookieHeader(browser),
    ])
    t.match(output.trim(), '[200, "Plant", 200, 200]')
  },
)

t.test('kin-openapi of Go calls the document valid', { skip: lacksGo }, async (t) => {
  const { status, output } = await run(goFolder, 'go', ['run', '.', api])
  t.equal(status, 0, output)
})
