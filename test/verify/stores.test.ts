import t, { type Test } from 'tap'
import { checkRedis } from '../../operator/check-redis.ts'
import { configOf } from '../config/environment.ts'
import { startChild } from '../helpers/child.ts'
import { startRedis } from '../helpers/redis.ts'
import { unpackProgram } from './debian.ts'

/** The store, alone, with Sentinel and as a Cluster; its failures; and the failovers of a whole deployment. */
const FILES = [
  'test/vault/store/all-other-files.ts',
  'test/vault/store/together-incidents.ts',
  'test/vault/store/redis-scan.test.ts',
  'test/flows/together-failovers.ts',
]

const STORES = [
  { release: 'trixie', name: 'valkey-server', program: 'valkey-server', product: /Valkey [89]\./ },
  { release: 'trixie', name: 'redis-server', program: 'redis-server', product: /Redis 8\./ },
  { release: 'sid', name: 'valkey-server', program: 'valkey-server', product: /Valkey (9|[1-9]\d)\./ },
]

async function runsWith(t: Test, path: string, file: string): Promise<void> {
  const { HOME = '', PATH = '' } = process.env
  const child = startChild(t, process.execPath, ['--require=./test/setup/run-compiled.cjs', file], {
    env: { HOME, PATH, REDIS_SERVER_PATH: path, TAP_TIMEOUT: '1800' },
  })
  const { code } = await child.ended
  const failed = child
    .output()
    .split('\n')
    .filter((line) => /^\s*not ok /.test(line))
  t.strictSame([code, failed], [0, []], file)
}

for (const { release, name, program, product } of STORES) {
  t.test(`the store works with ${name} of Debian ${release}`, async (t) => {
    let path: string
    try {
      path = await unpackProgram(t, { release, name, program })
    } catch (error) {
      return void t.plan(0, `cannot be unpacked here: ${(error as Error).message}`)
    }
    const before = process.env.REDIS_SERVER_PATH
    process.env.REDIS_SERVER_PATH = path
    const redis = await startRedis(t)
    if (before === undefined) delete process.env.REDIS_SERVER_PATH
    else process.env.REDIS_SERVER_PATH = before
    const { verdicts } = await checkRedis(configOf({ REDIS_URL: redis.url }).store)
    t.match(verdicts[0], { verdict: 'ok', message: product }, 'the doctor calls it by its name')
    for (const file of FILES) await runsWith(t, path, file)
  })
}
