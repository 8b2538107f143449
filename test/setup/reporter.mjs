// What a test run prints: one line for each file, the failures in full at the end, with what their files have printed, then
// what was skipped and the totals. On a terminal the last line shows the progress, and failures are shown as they come.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { Transform } from 'node:stream'
import { inspect } from 'node:util'
import { Parser } from 'tap-parser'

const DURATIONS = '.tap/durations.json'
/** Lines of `console.log` that are kept of one file: the last ones. */
const MOST_PRINTED = 200
/** What tap adds to a failure that no reader needs. */
const NOT_SHOWN = ['source', 'tapCaller', 'stack', 'at', 'diff', 'found', 'wanted', 'compare', 'command']

export default class Reporter extends Transform {
  #parser = new Parser()
  #isTerminal = process.stdout.isTTY === true
  #startedAt = Date.now()
  #lastDurations = readDurations()
  #files = 0
  #durations = new Map()
  #counts = { passed: 0, failed: 0, skipped: 0 }
  #failures = []
  #file = ''
  /** Lines by file. */
  #printed = new Map()
  #skips = new Map()

  constructor() {
    super()
    this.#parser.on('plan', ({ end }) => {
      this.#files = end
    })
    // What is no TAP: `console.log` of a test. tap leaves `console.error` to the terminal.
    this.#parser.on('extra', (text) => {
      const before = this.#printed.get(this.#file) ?? []
      this.#printed.set(this.#file, [...before, text.replace(/^ {4}/, '')].slice(-MOST_PRINTED))
    })
    this.#parser.on('child', ({ name }) => {
      this.#file = name
    })
    this.#watch(this.#parser, '', null)
  }

  _transform(chunk, _encoding, done) {
    this.#parser.write(chunk)
    done()
  }

  _flush(done) {
    this.#parser.on('complete', ({ ok }) => {
      this.#end(ok)
      done()
    })
    this.#parser.end()
  }

  /** The parser of the run has the path null: its children are the files. */
  #watch(parser, file, path) {
    let failedBefore = 0
    parser.on('child', (child) => {
      failedBefore = this.#failures.length
      if (path === null) this.#watch(child, child.name, [])
      else this.#watch(child, file, [...path, child.name])
    })
    parser.on('assert', (result) => {
      const hasFailed = this.#failures.length > failedBefore
      // The line that closes a subtest repeats its verdict, unless it fails for a reason of its own, such as a timeout.
      if (!result.closingTestPoint || (!result.ok && !hasFailed)) this.#note(result, file, path ?? [])
      if (path === null) this.#endFile(result, this.#failures.slice(failedBefore))
    })
    parser.on('bailout', (reason) => this.#note({ ok: false, name: `Bail out! ${reason}` }, file, path ?? []))
  }

  #endFile({ name, time }, failures) {
    const ms = time ?? 0
    this.#durations.set(name, ms)
    if (failures.length === 0) this.#printed.delete(name)
    if (this.#isTerminal) {
      for (const failure of failures) this.#print(`\r\x1b[K${textOf(failure)}\n`)
      if (failures.length > 0) this.#print(this.#printedBy(name))
      this.#print(`\r\x1b[K${this.#progress()}`)
    } else {
      const verdict = failures.length === 0 ? 'ok' : 'FAILED'
      this.#print(`${verdict.padEnd(6)} ${name} (${(ms / 1_000).toFixed(1)} s)\n`)
    }
  }

  #note({ ok, name, skip, todo, diag }, file, path) {
    // Left out on purpose by `--grep`.
    if (typeof skip === 'string' && skip.startsWith('filter: ')) return
    if (skip) {
      this.#counts.skipped += 1
      const why = typeof skip === 'string' ? skip : 'no reason given'
      this.#skips.set(why, [...(this.#skips.get(why) ?? []), `${file} > ${[...path, name].join(' > ')}`])
    } else if (ok || todo) this.#counts.passed += 1
    else {
      this.#counts.failed += 1
      this.#failures.push({ file, path: [...path, name], diag })
    }
  }

  #progress() {
    const done = `${this.#durations.size} of ${this.#files} files, ${this.#counts.failed} failed`
    const all = Object.entries(this.#lastDurations)
    const left = all.filter(([name]) => !this.#durations.has(name))
    // The last run was of other files, so its durations say nothing.
    if (all.length !== this.#files || left.length === 0) return done
    const elapsed = Date.now() - this.#startedAt
    const leftMs = (elapsed * sum(left.map(([, ms]) => ms))) / sum([...this.#durations.values()])
    return `${done}, about ${Math.ceil(leftMs / 60_000)} min left`
  }

  #end(ok) {
    if (this.#isTerminal) this.#print('\r\x1b[K')
    if (this.#failures.length > 0) this.#print('\nWhat failed:\n')
    for (const failure of this.#failures) this.#print(`\n${textOf(failure)}`)
    // Before the first file.
    this.#printed.delete('')
    for (const file of this.#printed.keys()) this.#print(this.#printedBy(file))
    for (const [why, tests] of this.#skips) this.#print(`\nSkipped: ${why}\n  ${tests.join('\n  ')}\n`)
    // A run that ends without a verdict of its own, as after a signal, has failed.
    if (!ok && this.#counts.failed === 0) this.#counts.failed = 1
    const { passed, failed, skipped } = this.#counts
    const seconds = Math.round((Date.now() - this.#startedAt) / 1_000)
    this.#print(
      `\n${passed} passed, ${failed} failed, ${skipped} skipped (${this.#durations.size} of ${this.#files} files, ${seconds} s)\n`,
    )
    writeDurations(Object.fromEntries(this.#durations))
  }

  /** What a file that has failed has printed. */
  #printedBy(file) {
    const lines = this.#printed.get(file)
    return lines === undefined
      ? ''
      : `\nPrinted by ${file}:\n    ${lines.join('').trimEnd().replaceAll('\n', '\n    ')}\n`
  }

  #print(text) {
    this.push(text)
  }
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0)
}

function textOf({ file, path, diag }) {
  const lines = [`not ok ${[file, ...path].filter(Boolean).join(' > ')}`]
  if (diag?.at) lines.push(`at ${diag.at.fileName}:${diag.at.lineNumber}`)
  if (diag?.diff) lines.push(diag.diff.trimEnd())
  else if (diag && 'found' in diag) lines.push(inspected({ found: diag.found, wanted: diag.wanted }))
  const rest = Object.fromEntries(Object.entries(diag ?? {}).filter(([name]) => !NOT_SHOWN.includes(name)))
  if (Object.keys(rest).length > 0) lines.push(inspected(rest))
  if (diag?.stack) lines.push(diag.stack.trimEnd())
  return `${lines.join('\n').replaceAll('\n', '\n    ')}\n`
}

/** Whatever tap writes: at a timeout also the functions of open handles, which YAML has no text for. */
function inspected(value) {
  return inspect(value, { depth: 10, breakLength: 120 })
}

function readDurations() {
  try {
    return JSON.parse(readFileSync(DURATIONS, 'utf8'))
  } catch {
    return {}
  }
}

function writeDurations(durations) {
  mkdirSync('.tap', { recursive: true })
  writeFileSync(DURATIONS, `${JSON.stringify(durations)}\n`)
}
