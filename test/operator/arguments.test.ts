import t from 'tap'
import { parseArguments } from '../../operator/cli.ts'

t.test('every command line is read', async (t) => {
  const understood: [string, object][] = [
    ['count', { kind: 'count', json: false }],
    ['count --json', { kind: 'count', json: true }],
    ['count --old-key', { kind: 'count_seals', json: false }],
    ['--old-key count --json', { kind: 'count_seals', json: true }],
    ['list', { kind: 'list', json: false, user: null }],
    ['list --json', { kind: 'list', json: true, user: null }],
    ['list --user a-1', { kind: 'list', json: false, user: 'a-1' }],
    ['end --user a-1 --no-revoke', { kind: 'end_user', user: 'a-1', revokes: false }],
    ['end 0aF', { kind: 'end', id: '0af', revokes: true }],
    [`end ${'0'.repeat(64)} --no-revoke`, { kind: 'end', id: '0'.repeat(64), revokes: false }],
    ['end-all', { kind: 'end_all', confirmed: false, revokes: true }],
    ['end-all --yes', { kind: 'end_all', confirmed: true, revokes: true }],
    ['end-all --yes --no-revoke', { kind: 'end_all', confirmed: true, revokes: false }],
    ['reseal', { kind: 'reseal', json: false }],
    ['--help', { kind: 'help' }],
    ['help', { kind: 'help' }],
    ['end-all -h', { kind: 'help' }],
  ]
  for (const [line, command] of understood) t.strictSame(parseArguments(line.split(' ')), command, line)
})

t.test('a wrong command line says why, and runs nothing', async (t) => {
  const wrong: [string, RegExp][] = [
    ['', /missing/],
    ['destroy', /no command "destroy"/],
    ['toString', /no command/],
    ['end', /id of a session/],
    ['end xyz', /hex digits/],
    [`end ${'0'.repeat(65)}`, /hex digits/],
    ['end 0a 0b', /one id/],
    ['end-all 0a --yes', /no further argument/],
    ['end 0a --yes', /takes no --yes/],
    ['count --yes', /takes no --yes/],
    ['list --old-key', /takes no --old-key/],
    ['end 0a --user a-1', /not both/],
    ['list --user=', /whole id/],
    [`list --user ${'a'.repeat(257)}`, /256/],
    ['count --user a-1', /takes no --user/],
    ['count --force', /--force/],
    ['count --json=1', /--json/],
  ]
  for (const [line, message] of wrong) {
    const command = parseArguments(line === '' ? [] : line.split(' '))
    t.match(command, { kind: 'wrong', message }, line)
  }
})
