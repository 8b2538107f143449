import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { RE2JS } from 're2js'
import type { Operation } from '../src/config/operation.ts'
import { schemasIn } from '../src/config/operation-schema.ts'
import { isObject, jsonPointer } from '../src/json.ts'
import { exampleOfBody } from '../src/proxy/declared-operation.ts'
import { VERSION } from '../src/version.ts'
import { printable } from './in-ascii.ts'
import { declarationsOf } from './operation-faults.ts'
import { typesOf } from './operation-types.ts'

const SOUND = 0
const WRONG = 2

const HELP = `Checks a file of declared operations, and makes typed calls of it for a page.

  npm run operations -- <command> [FILE]          node dist/operations.js <command> [FILE]

  check [FILE]   prints every fault of the file, one a line, or what it declares; warns of patterns that Go cannot
                 read, and of bodies without an example
  types [FILE]   prints a TypeScript module with a typed call for each operation: save it beside bff-client.ts

  --help         prints this text
  --version      prints the version

Without FILE the command reads that of OPERATIONS_FILE. With variables of the server that matter to the file (WAC,
WAC_ALLOWED, OAUTH_FLOWS, BASE_URL, AUTH_URL, OAUTH_..._URL) the file is held against them as the server does.

Exit code 0: no fault. 2: faults, no such file, or called wrongly.
`

function main(args: readonly string[]): number {
  let parsed: { values: { help?: boolean; version?: boolean }; positionals: string[] }
  try {
    const options = { help: { type: 'boolean', short: 'h' }, version: { type: 'boolean' } } as const
    parsed = parseArgs({ args: [...args], options, allowPositionals: true })
  } catch (error) {
    return wrong((error as Error).message)
  }
  const [name, path = process.env.OPERATIONS_FILE, ...more] = parsed.positionals
  if (parsed.values.help || name === 'help') return print(HELP)
  if (parsed.values.version) return print(`${VERSION}\n`)
  if (name !== 'check' && name !== 'types') return wrong('The command must be check or types.')
  if (more.length > 0) return wrong(`${name} takes one file.`)
  if (!path) return wrong(`${name} needs a file: name it, or set OPERATIONS_FILE.`)
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    return wrong(`${path} cannot be read (${(error as NodeJS.ErrnoException).code}).`)
  }
  const { faults, ...declared } = declarationsOf(text, process.env)
  if (faults.length > 0) {
    process.stderr.write(faults.map((fault) => `${printable(`${path} ${fault}`)}\n`).join(''))
    return WRONG
  }
  if (name === 'types') return print(typesOf(declared.operations))
  for (const warning of declared.operations.flatMap((each) => [
    ...patternWarnings(each),
    ...exampleWarnings(each),
  ]))
    process.stderr.write(`${printable(`${path} ${warning}`)}\n`)
  const { length } = declared.operations
  return print(`${path}: ${length} ${length === 1 ? 'operation' : 'operations'}, no fault\n`)
}

/** Patterns of the schemas that are none of RE2, so that programs in Go reject the OpenAPI document as a whole. */
function patternWarnings({ name, body, response }: Operation): string[] {
  const found: string[] = []
  if (body !== null && 'schema' in body) walk(body.schema, ['operations', name, 'body', 'schema'])
  walk(response, ['operations', name, 'response'])
  return found

  function walk(schema: unknown, path: readonly string[]): void {
    if (!isObject(schema)) return
    for (const [keyword, value] of Object.entries(schema)) {
      if (keyword === 'pattern' && typeof value === 'string') warn(value, [...path, keyword])
      if (keyword === 'patternProperties' && isObject(value))
        for (const pattern of Object.keys(value)) warn(pattern, [...path, keyword, pattern])
      for (const [inner, part] of schemasIn(keyword, value)) walk(part, [...path, ...inner])
    }
  }

  function warn(pattern: string, at: readonly string[]): void {
    try {
      RE2JS.compile(pattern)
    } catch (error) {
      const reason = (error as Error).message.replace('error parsing regexp: ', '')
      found.push(`${jsonPointer(...at)}: warning: programs in Go cannot read it (RE2: ${reason})`)
    }
  }
}

/** Bodies without an example in the OpenAPI document. Where it has one, tools that try the operation send a valid body. */
function exampleWarnings(operation: Operation): string[] {
  const { name, body } = operation
  if (body === null || 'types' in body || exampleOfBody(operation, body) !== undefined) return []
  const at = jsonPointer('operations', name, 'body', 'schema')
  return [`${at}: warning: no example can be made of it for /openapi.json: give it "examples"`]
}

function print(text: string): number {
  process.stdout.write(text)
  return SOUND
}

function wrong(message: string): number {
  process.stderr.write(`${message}\nFor the commands: node dist/operations.js --help\n`)
  return WRONG
}

process.exitCode = main(process.argv.slice(2))
