import t from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'

t.test(
  'where the platform gives one grant for a user and a client, two browsers sign each other out in turn',
  async (t) => {
    const sandbox = await startSandbox(t, { faults: { oneGrantPerUser: true } })
    const bff = await startBff(t, sandbox)
    const [laptop, phone] = [bff.browser(), bff.browser()]
    const refused = (at: string) => ({ status: 401, code: 'login_required', reason: 'refused', at })
    const read = async (browser: typeof laptop, at: string) => {
      const answer = await browser.fetch('/flux/a')
      const { code, reason } = answer.json()
      return { status: answer.status, code, reason, at }
    }

    await signIn(laptop, sandbox)
    t.match(await read(laptop, 'laptop'), { status: 200 })
    await signIn(phone, sandbox)
    t.match(await read(phone, 'phone'), { status: 200 })
    t.strictSame(await read(laptop, 'laptop'), refused('laptop'))

    await signIn(laptop, sandbox)
    t.match(await read(laptop, 'laptop'), { status: 200 })
    t.strictSame(await read(phone, 'phone'), refused('phone'))
    const ends = bff
      .log()
      .split('\n')
      .filter((line) => line.includes('"session.ended"'))
    t.equal(ends.filter((line) => line.includes('"reason":"refused"')).length, 2)
  },
)
