import t from 'tap'
import { createServer } from '../../src/http/server.ts'
import { createLog } from '../../src/log.ts'
import { configOf } from '../config/environment.ts'
import { installVirtualTime } from '../vault/refresh/virtual-time.ts'

t.test('a start may take as long as the machine makes it take', async (t) => {
  const time = installVirtualTime(t)
  const server = createServer(configOf({ PUBLIC_URL: 'http://localhost:3000' }), createLog('silent'))
  t.teardown(() => server.close())
  let finish = (): void => {}
  server.register(async () => {
    await new Promise<void>((resolve) => {
      finish = resolve
    })
  })
  let isReady = false
  const ready = server.ready().then(() => {
    isReady = true
  })
  await time.settle()
  await time.advance(600_000)
  t.notOk(isReady)
  finish()
  await ready
})
