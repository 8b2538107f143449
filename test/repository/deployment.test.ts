import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseEnv } from 'node:util'
import t from 'tap'
import { parseConfig } from '../../src/config/config.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

function read(path: string): string {
  return readFileSync(`${ROOT}/${path}`, 'utf8')
}

function numberIn(text: string, pattern: RegExp): number {
  return Number(pattern.exec(text)?.[1])
}

const page = read('docs/deployment.md')
const example = read('deploy/systemd/env.example')
const unit = read('deploy/systemd/token-handler-bff@.service')
const delay = numberIn(example, /^SHUTDOWN_DELAY_SECONDS=(\d+)$/m)

t.test('the server accepts the settings of the Debian deployment, once the secret is replaced', async (t) => {
  const refused = parseConfig(parseEnv(example) as Record<string, string>)
  t.match(refused, { ok: false, faults: [/^SESSION_SECRET/] })
  const replaced = example.replace(/^SESSION_SECRET=.*$/m, `SESSION_SECRET=${'x1'.repeat(20)}`)
  const parsed = parseConfig(parseEnv(replaced) as Record<string, string>)
  t.strictSame(parsed.ok ? parsed.warnings : parsed.faults, [])
})

t.test(
  'systemd waits for the drain and the stop, and nginx ends idle connections before the drain ends',
  async (t) => {
    const stop = numberIn(example, /^SHUTDOWN_SECONDS=(\d+)$/m)
    t.ok(numberIn(unit, /^TimeoutStopSec=(\d+)$/m) >= delay + stop + 5)
    const nginx = read('deploy/nginx/token-handler-bff.conf')
    t.ok(numberIn(nginx, /^ *keepalive_timeout (\d+)s;$/m) < delay)
  },
)

t.test('the page names the ports, files and folders of the unit', async (t) => {
  t.match(unit, /^Environment=PORT=300%i OPS_PORT=946%i$/m)
  for (const port of [3001, 3002, 9461, 9462]) t.ok(page.includes(`127.0.0.1:${port}`), `port ${port}`)
  for (const path of ['/etc/token-handler-bff/env', '/opt/token-handler-bff']) {
    t.ok(unit.includes(path) && page.includes(path), path)
  }
})

t.test('the command of the page leads nginx to the two replicas', async (t) => {
  const command = /^ *(sed [\s\S]*?) > \/etc\/nginx\/conf\.d\/token-handler-bff\.conf$/m.exec(page)?.[1] ?? ''
  const { stdout, stderr } = spawnSync('sh', ['-c', command], { cwd: ROOT, encoding: 'utf8' })
  t.equal(stderr, '')
  t.strictSame(stdout.match(/server \d[\d.]+:\d+/g), ['server 127.0.0.1:3001', 'server 127.0.0.1:3002'])
})
