import { createServer } from 'node:net'
import t from 'tap'
import { freePort } from '../helpers/ports.ts'

t.test('freePort never returns a port twice, even if the port is unused', async (t) => {
  const ports: number[] = []
  // One after the other, so that each is free again before the next is asked for.
  for (let count = 0; count < 2_000; count += 1) ports.push(await freePort())
  t.equal(new Set(ports).size, ports.length)
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(ports[0], '127.0.0.1', resolve))
  server.close()
})
