import { analyse } from 'scslre'
import t from 'tap'
import ts from 'typescript'
import { filesBelow, read } from './files.ts'

/** Files with patterns that may take quadratic time: how many, and why nobody can make them slow. */
const ACCEPTED: Record<string, { count: number; why: string }> = {
  'src/config/kinds.ts': { count: 1, why: 'reads a setting of the operator' },
  'src/http/body.ts': { count: 1, why: 'reads at most MAX_TYPE_LENGTH characters' },
  'src/proxy/invalid-token.ts': { count: 1, why: 'reads at most MAX_CHALLENGE characters' },
  'demo/page/flux-parse.ts': { count: 1, why: 'runs in the browser, on values of the demo' },
  'demo/page/flux-xml.ts': { count: 2, why: 'runs in the browser, on documents of the demo' },
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
  const files = ['src', 'operator', 'sandbox', 'demo', 'client'].flatMap((folder) =>
    filesBelow(folder, '.ts'),
  )
  const literals = files.flatMap((name) => literalsOf(name, read(name)).map((literal) => ({ name, literal })))
  const slow = literals.filter(({ literal }) => isSlow(literal))
  const others = slow.filter(({ name }) => !(name in ACCEPTED))
  t.strictSame(others, [])
  for (const [name, { count }] of Object.entries(ACCEPTED)) {
    const found = slow.filter((one) => one.name === name).map(({ literal }) => literal)
    t.equal(found.length, count, `${name} has no other slow pattern: ${found.join('  ')}`)
  }
})
