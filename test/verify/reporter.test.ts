import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { makeFolder } from '../helpers/watchdog.ts'

const REPORTER = fileURLToPath(new URL('../setup/reporter.mjs', import.meta.url))

/** What the reporter prints of a run. `folder` keeps the durations of files. */
function report(tap: string, { isTerminal = false, folder = makeFolder('reporter') } = {}): string {
  const script = `import Reporter from ${JSON.stringify(REPORTER)}
    process.stdout.isTTY = ${isTerminal}
    process.stdin.pipe(new Reporter()).pipe(process.stdout)`
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    cwd: folder,
    input: tap,
    encoding: 'utf8',
  })
  return stdout + stderr
}

const RUN = `TAP version 14
1..2
# Subtest: a.test.ts
    # Subtest: it counts
        ok 1 - one
        not ok 2 - two
          ---
          at:
            fileName: a.test.ts
            lineNumber: 7
          diff: |
            -1
            +2
          ...
        1..2
        # failed 1 of 2 tests
    not ok 1 - it counts # time=5ms
    ok 2 - it waits # SKIP no clock here
    1..2
    # failed 1 of 2 tests
not ok 1 - a.test.ts # time=10ms
# Subtest: b.test.ts
    ok 1 - three
    1..1
ok 2 - b.test.ts # time=20ms
# failed 1 of 2 tests
`

t.test('a run prints each file, each failure once, each skip at the end, and the totals', async (t) => {
  const printed = report(RUN)
  t.match(printed, /^FAILED a\.test\.ts .*\nok {5}b\.test\.ts /)
  t.equal(printed.match(/not ok/g)?.length, 1)
  t.match(printed, 'not ok a.test.ts > it counts > two\n    at a.test.ts:7\n    -1\n    +2\n')
  t.match(printed, /Skipped: no clock here\n {2}a\.test\.ts > it waits\n/)
  t.match(printed, /\n2 passed, 1 failed, 1 skipped \(2 of 2 files, \d+ s\)\n$/)
})

t.test('what a file prints is shown if a test of it fails', async (t) => {
  const printed = report(
    RUN.replace(/ {4}# Subtest: it counts\n/, '    seen by a\n$&').replace(
      / {4}ok 1 - three\n/,
      '    seen by b\n$&',
    ),
  )
  t.match(printed, '\nPrinted by a.test.ts:\n    seen by a\n')
  t.notMatch(printed, 'seen by b')
})

t.test('a file that fails without a failed test is a failure', async (t) => {
  const printed = report(`TAP version 14
1..1
# Subtest: a.test.ts
    ok 1 - one
    1..1
not ok 1 - a.test.ts # time=10ms
  ---
  exitCode: 7
  ...
# failed 1 of 1 test
`)
  t.match(printed, 'exitCode: 7')
  t.match(printed, /\n1 passed, 1 failed, 0 skipped /)
})

t.test('a file that hangs is a failure, with what it waits for', async (t) => {
  const printed = report(`TAP version 14
1..1
# Subtest: a.test.ts
    not ok 1 - timeout!
      ---
      handles:
        - type: Socket
          open: !function |-
            "open"
            function open() {}
      ...
    1..1
    # failed 1 test
not ok 1 - a.test.ts # time=10ms
# failed 1 of 1 test
`)
  t.match(printed, "type: 'Socket'")
  t.match(printed, /\n0 passed, 1 failed, 0 skipped /)
})

t.test('on a terminal it shows failures as they come, the files done and the time left', async (t) => {
  const folder = makeFolder('reporter')
  report(RUN, { folder })
  const printed = report(RUN, { folder, isTerminal: true })
  t.ok(printed.indexOf('not ok a.test.ts') < printed.indexOf('1 of 2 files, 1 failed, about 1 min left'))
  t.match(printed, /2 of 2 files, 1 failed\r/)
})
