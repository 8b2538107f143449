import { parseEnv } from 'node:util'
import t from 'tap'
import { parseConfig } from '../src/config/config.ts'
import { TABLE, VARIABLE_NAMES } from '../src/config/variables.ts'
import { PAGES, read } from './repository/files.ts'

const example = read('.env.example')
const page = read('docs/configuration.md')

const names = [...VARIABLE_NAMES].sort()
const variables = VARIABLE_NAMES.map((name) => ({ name, ...TABLE[name] }))

/** Lines `NAME=value` or `#NAME=value`, with the comment right above them. */
const entries = [...example.matchAll(/((?:^# .*\n)+)^(#?)([A-Z_]+)=(.*)$/gm)].map(
  ([, comment = '', hash, name = '', value = '']) => ({ comment, isSet: hash === '', name, value }),
)

/** Rows of the tables: cells without the blanks around them. */
const rows = [...page.matchAll(/^\| `([A-Z_]+)`(.*)$/gm)].map(([line, name = '']) => ({
  name,
  cells: line.split('|').map((cell) => cell.trim()),
}))

/** What the file sets, as `node --env-file` reads it. */
const exampleEnv = parseEnv(example) as Record<string, string>

t.test('.env.example lists exactly the variables that are read, with meaning and default', async (t) => {
  const listed = [...example.matchAll(/^#?([A-Z_]+)=/gm)].map(([, name]) => name)
  t.strictSame(listed.sort(), names, '.env.example: a line for each variable of src/config/variables.ts')
  t.strictSame(entries.map(({ name }) => name).sort(), names, 'a comment with its meaning above each line')
  for (const entry of entries) {
    const variable = variables.find(({ name }) => name === entry.name)
    if (variable === undefined) continue
    t.ok(entry.comment.startsWith(`# ${variable.meaning}`), `${variable.name}: ${variable.meaning}`)
    t.equal(
      entry.isSet,
      variable.required || ['REDIS_URL', 'WAC'].includes(variable.name),
      `${variable.name} is set`,
    )
    if (!entry.isSet) t.equal(entry.value, variable.default ?? '', `${variable.name}: default`)
    const file = `${variable.name}_FILE`
    if (variable.secret) t.match(entry.comment, file)
    else t.notMatch(entry.comment, file)
  }
})

t.test('docs/configuration.md lists exactly them, with default, range and words', async (t) => {
  t.strictSame(rows.map(({ name }) => name).sort(), names, 'docs/configuration.md: a row for each variable')
  for (const { name: found, cells } of rows) {
    const variable = variables.find(({ name }) => name === found)
    if (variable === undefined) continue
    const [, name, fallback = ''] = cells
    t.equal(name, `\`${variable.name}\`${variable.secret ? ' (secret)' : ''}`)
    const [before, range] = fallback.split(' (')
    if (variable.required) t.equal(before, 'required', variable.name)
    else if (variable.default !== null) t.equal(before, `\`${variable.default}\``, variable.name)
    else t.notMatch(before, /^`|^required$|^$/, variable.name)
    const { accepts } = variable.kind
    const [, least, most] = /^a whole number from (\d+) to (\d+)$/.exec(accepts) ?? []
    if (least !== undefined) t.equal(range, `${least}–${most})`, variable.name)
    const words = /one of (`.*`)/.exec(accepts)?.[1]?.split(', ') ?? []
    for (const word of words) t.ok(cells.join(' ').includes(word), `${variable.name}: ${word}`)
    t.equal(page.includes(`\`${variable.name}_FILE\``), variable.secret, `${variable.name}_FILE`)
  }
})

t.test('.env.example works as it stands once its placeholder is replaced, and not before', async (t) => {
  const untouched = parseConfig(exampleEnv)
  if (untouched.ok) throw new Error('the placeholder is taken')
  t.match(untouched.faults, [/^SESSION_SECRET is the placeholder.*openssl rand -base64 48$/])
  t.equal(untouched.faults.length, 1)
  const replaced = parseConfig({ ...exampleEnv, SESSION_SECRET: 'a-secret-of-32-characters-or-more' })
  t.strictSame(replaced.ok && replaced.warnings, [])
})

t.test('every optional line of .env.example may be uncommented as it stands', async (t) => {
  const all = Object.fromEntries(entries.map(({ name, value }) => [name, value]))
  const parsed = parseConfig({ ...all, SESSION_SECRET: 'a-secret-of-32-characters-or-more' })
  t.strictSame(parsed.ok || parsed.faults, true)
})

t.test('no session secret that is printed in the documentation is accepted', async (t) => {
  const text = ['.env.example', ...PAGES].map(read).join('\n')
  const printed = [...text.matchAll(/\bSESSION_SECRET\s*[=:]\s*["']?([^\s"'`$(]+)/g)]
  t.ok(printed.length > 0, 'the placeholder is among them')
  for (const [, secret = ''] of printed)
    t.equal(parseConfig({ ...exampleEnv, SESSION_SECRET: secret }).ok, false, secret)
})
