import { readdirSync, readFileSync } from 'node:fs'
import { join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { analyse } from 'scslre'
import t from 'tap'
import ts from 'typescript'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Files with patterns that may take quadratic time: how many, and why nobody can make them slow. */
const ACCEPTED: Record<string, { count: number; why: string }> = {
  'src/config/kinds.ts': { count: 1, why: 'reads a setting of the operator' },
  'src/http/body.ts': { count: 1, why: 'reads at most MAX_TYPE_LENGTH characters' },
  'src/proxy/invalid-token.ts': { count: 1, why: 'reads at most MAX_CHALLENGE characters' },
  'demo/page/flux-parse.ts': { count: 1, why: 'runs in the browser, on values of the demo' },
  'demo/page/flux-xml.ts': { count: 2, why: 'runs in the browser, on documents of the demo' },
}

function sources(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => `${folder}/${name.split(sep).join('/')}`)
}

function literalsOf(name: string, text: string): string[] {
  const found: string[] = []
  const visit = (node: ts.Node): void => {
    if (ts.isRegularExpressionLiteral(node)) found.push(node.text)
    ts.forEachChild(node, visit)
  }
  visit(ts.createSourceFile(name, text, ts.ScriptTarget.Latest))
  return found
}

/** Whether some text makes the engine take more than linear time: by backtracking, or by a new try at each character. */
function isSlow(literal: string): boolean {
  const end = literal.lastIndexOf('/')
  const parts = { source: literal.slice(1, end), flags: literal.slice(end + 1) }
  return analyse(parts, { reportTypes: { Move: true, Self: true, Trade: true } }).reports.length > 0
}

t.test('no regular expression takes more than linear time, unless its text is bounded', async (t) => {
  const files = ['src', 'sandbox', 'demo', 'client'].flatMap(sources)
  const literals = files.flatMap((name) =>
    literalsOf(name, readFileSync(join(ROOT, name), 'utf8')).map((literal) => ({ name, literal })),
  )
  t.ok(literals.some(({ name }) => name.startsWith('sandbox/')))
  t.ok(literals.some(({ name }) => name.startsWith('client/')))
  const slow = literals.filter(({ literal }) => isSlow(literal))
  t.strictSame(
    slow.filter(({ name }) => !(name in ACCEPTED)),
    [],
  )
  for (const [name, { count }] of Object.entries(ACCEPTED)) {
    const found = slow.filter((one) => one.name === name).map(({ literal }) => literal)
    t.equal(found.length, count, `${name} has no other slow pattern: ${found.join('  ')}`)
  }
})

t.test(
  'slow patterns are found: by moves, by backtracking, and by exchange between two repetitions',
  async (t) => {
    const code = `a.replace(/^ +| +$/g, '') + /\\s+$/.test(b) + c.match(/^(?:x+)+$/) + /^\\s*;?\\s*$/.exec(d)`
    const slow = literalsOf('a.ts', code)
    t.strictSame(slow, ['/^ +| +$/g', '/\\s+$/', '/^(?:x+)+$/', '/^\\s*;?\\s*$/'])
    for (const literal of slow) t.ok(isSlow(literal), literal)
    for (const literal of ['/^ +/', '/\\r?\\n$/', '/^a[^b]*b/', '/[^a]b/g']) t.notOk(isSlow(literal), literal)
  },
)
