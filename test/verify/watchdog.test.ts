import { existsSync, readFileSync } from 'node:fs'
import t from 'tap'
import { startChild, waitForOutput } from '../helpers/child.ts'
import { until } from '../helpers/wait.ts'

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch {
    return false
  }
  // A zombie still takes signals.
  return !existsSync(`/proc/${pid}/stat`) || !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
}

t.test(
  'processes that a test started end when the test process is killed, and its folder is removed',
  async (t) => {
    const script = `
    import { startRedis } from ${JSON.stringify(new URL('../helpers/redis.ts', import.meta.url).href)}
    const redis = await startRedis({ teardown() {} })
    console.log('PID ' + redis.pid + ' ' + (await redis.cli('config', 'get', 'dir')).split('\\n')[1])
    setInterval(() => {}, 1000)
  `
    const args = ['--import=tsx', '--input-type=module', '--eval', script]
    const victim = startChild(t, process.execPath, args, {
      env: { ...process.env } as Record<string, string>,
    })
    const found = await waitForOutput(victim, (text) => /PID (\d+) (\S+)/.exec(text))
    if (found === null) throw new Error(victim.output())
    const pid = Number(found[1])
    const folder = found[2] ?? ''
    t.ok(isAlive(pid))
    t.ok(existsSync(folder))

    await victim.stop('SIGKILL')
    await until('its process and its folder are gone', () => !isAlive(pid) && !existsSync(folder))
  },
)
