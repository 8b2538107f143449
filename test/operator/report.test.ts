import t from 'tap'
import { createReport } from '../../operator/report.ts'

t.test('a secret is replaced in each form that a platform may send it in', async (t) => {
  const lines: string[] = []
  const report = createReport({ json: false, out: (line) => lines.push(line), error: () => {} })
  const secret = 's3cr&t+%/=?token"x'
  report.hide(secret)
  const forms = [
    secret,
    encodeURIComponent(secret),
    encodeURIComponent(secret).toLowerCase(),
    new URLSearchParams({ x: secret }).toString(),
    ...['', 'a', 'ab'].flatMap((before) => [
      Buffer.from(`${before}${secret}:after`).toString('base64'),
      Buffer.from(`${before}${secret}:after`).toString('base64url'),
    ]),
  ]
  for (const form of forms) {
    const quoted = report.quote(`it says ${form}.`)
    t.match(quoted, /\*\*\*/, form)
    t.notOk(quoted.includes('cr&t') || quoted.includes('cr%26t') || quoted.includes('zY3I'), quoted)
  }
  report.add('check', { message: secret, value: secret, setting: `X=${secret}` })
  report.say(secret)
  t.notMatch(lines.join(), 'cr&t')
})

t.test('text of the platform is at most 200 characters of printable ASCII', async (t) => {
  const report = createReport({ json: true, out: () => {}, error: () => {} })
  t.equal(report.quote('x'.repeat(500)).length, 200)
  t.equal(report.quote('a\u001b[31m\nb\u00e9'), 'a?[31m b?')
})
