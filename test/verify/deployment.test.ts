import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { parseEnv } from 'node:util'
import t from 'tap'
import { parse, parseAllDocuments } from 'yaml'
import { parseConfig } from '../../src/config/config.ts'
import { codeBlock, codeBlocks } from '../helpers/documentation.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { commandsOf, PAGES, ROOT, read } from '../repository/files.ts'

function numberIn(text: string, pattern: RegExp): number {
  return Number(pattern.exec(text)?.[1])
}

const PAGE = 'docs/deployment.md'
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

t.test('the unit restarts for ever, waits for drain and stop, and limits the process', async (t) => {
  const stop = numberIn(example, /^SHUTDOWN_SECONDS=(\d+)$/m)
  t.ok(numberIn(unit, /^TimeoutStopSec=(\d+)$/m) >= delay + stop + 5)
  const nginx = read('deploy/nginx/token-handler-bff.conf')
  t.ok(numberIn(nginx, /^ *keepalive_timeout (\d+)s;$/m) < delay, 'idle connections end before the drain')
  // The server exits if Redis refuses its credentials. Systemd gives up after five starts within ten seconds.
  t.ok(5 * numberIn(unit, /^RestartSec=(\d+)$/m) > 10)
  for (const setting of [
    ...['LimitCORE=0', 'UMask=0077', 'SystemCallFilter=@system-service', 'SystemCallErrorNumber=EPERM'],
    ...['SystemCallArchitectures=native', 'RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX'],
    ...['CapabilityBoundingSet=', 'NoNewPrivileges=yes', 'ProtectSystem=strict', 'PrivateDevices=yes'],
  ]) {
    t.ok(unit.split('\n').includes(setting), setting)
  }
})

function commandsBelow(wanted: string): string[] {
  return commandsOf(PAGE).flatMap(({ heading, command }) => (heading === wanted ? [command] : []))
}

function run(commands: readonly string[], cwd: string, shell = 'sh'): string {
  const { stdout, stderr, status } = spawnSync(shell, ['-ec', commands.join('\n')], { cwd, encoding: 'utf8' })
  if (status !== 0 || stderr !== '') throw new Error(`exit code ${status}: ${stderr}`)
  return stdout
}

t.test('the commands that make files on Debian work as printed, below another root', async (t) => {
  const root = makeFolder('debian')
  const opt = join(root, 'opt/token-handler-bff')
  // What Debian's packages make, the copied repository, and the certificate that the reader has.
  for (const folder of ['etc/nginx/conf.d', 'etc/systemd/system'])
    mkdirSync(join(root, folder), { recursive: true })
  cpSync(join(ROOT, 'deploy'), join(opt, 'deploy'), { recursive: true })
  for (const name of ['fullchain.pem', 'privkey.pem']) writeFileSync(join(opt, name), name)

  const commands = commandsBelow('From an empty Debian machine')
  // They need the machine itself; other tests run the doctor, the unit's settings and nginx with this file.
  const isOfMachine = (line: string) =>
    /^(apt-get|systemctl|redis-cli|nginx|useradd|chown|su|node|nano|curl) /.test(line)
  const own = commands.filter((line) => !isOfMachine(line))
  t.ok(own.length > 8 && own.length < commands.length, own.join('\n'))
  const moved = own
    .map((line) => line.replace(/(?<![\w.])\/(?=etc\/|opt\/)/g, `${root}/`))
    .map((line) => line.replace(/^NAME=.*$/, 'NAME=bff.example.net'))
  for (const [path] of moved.join('\n').matchAll(/(?<=^|[\s"'=>])\/\S*/gm))
    if (!path.startsWith(`${root}/`)) throw new Error(`outside of the folder of this test: ${path}`)
  run(moved, opt)

  t.equal(statSync(join(root, 'etc/token-handler-bff/env')).mode & 0o777, 0o600)
  t.equal(readFileSync(join(root, 'etc/token-handler-bff/env'), 'utf8'), example)
  t.equal(readFileSync(join(root, 'etc/systemd/system/token-handler-bff@.service'), 'utf8'), unit)
  const copies = ['token-handler-bff', 'token-handler-bff.new']
  t.strictSame(readdirSync(join(root, 'opt')), copies, 'gone back to the copy')
  const nginx = readFileSync(join(root, 'etc/nginx/conf.d/token-handler-bff.conf'), 'utf8')
  t.strictSame(nginx.match(/server \d[\d.]+:\d+/g), ['server 127.0.0.1:3001', 'server 127.0.0.1:3002'])
  t.notMatch(nginx.replaceAll(/^ *#.*$/gm, ''), 'app.example.com')
  t.match(nginx, 'server_name bff.example.net;')
  const kept = { ssl_certificate: 'fullchain.pem', ssl_certificate_key: 'privkey.pem' }
  for (const [name, content] of Object.entries(kept)) {
    const path = new RegExp(`^ *${name} +(\\S+);$`, 'm').exec(nginx)?.[1] ?? ''
    t.equal(readFileSync(join(root, path), 'utf8'), content, name)
  }
})

t.test('no printed command runs scripts of packages as root or writes a readable secret', (t) => {
  const blocks = codeBlocks(PAGE).filter(({ language }) => language === 'sh')
  const lines = blocks.flatMap(({ code }) => code.split('\n'))
  const installs = lines.filter((line) => /\bnpm (ci|install|run build)\b/.test(line))
  t.ok(installs.length > 0)
  for (const line of installs) {
    t.match(line, /^su bff-build /)
    t.match(line, /npm ci --ignore-scripts /)
  }
  const writes = /> "?[\w/$-]*(secret|url|key)\b/
  const writers = blocks.filter(({ code }) => code.split('\n').some((line) => writes.test(line)))
  t.ok(writers.length > 0)
  for (const { code } of writers) t.match(code, /^(umask 077|mkdir -m 700 secrets)$/m)
  t.end()
})

const kubernetes = (name: string) =>
  parseAllDocuments(read(`deploy/kubernetes/${name}.yaml`)).map((one) => one.toJS())

t.test('the secret that the page makes has the files that the pod reads', async (t) => {
  const commands = commandsBelow('Kubernetes').filter((line) =>
    /^(openssl|printf|rm|kubectl create) /.test(line),
  )
  const files = new Map<string, string>()
  const folder = makeFolder('kubernetes')
  // Instead of the cluster: says what it would store.
  const kubectl = `kubectl() {
    for argument; do case $argument in --from-file=*) f=\${argument#*=}; printf '%s %s\\n' "$f" "$(cat "$f")";; esac; done
  }`
  for (const [, name = '', content = ''] of run([kubectl, ...commands], folder).matchAll(/^(\S+) (.*)$/gm))
    files.set(name, content)
  t.strictSame(readdirSync(folder), [], 'no secret is left behind')

  const [{ spec }] = kubernetes('deployment')
  const { containers, volumes } = spec.template.spec
  const paths = (containers[0].env as { name: string; value: string }[]).filter(({ name }) =>
    name.endsWith('_FILE'),
  )
  t.strictSame([...files.keys()].sort(), paths.map(({ value }) => basename(value)).sort())
  const [, secret] = /^kubectl create secret generic (\S+)/m.exec(commands.join('\n')) ?? []
  t.equal(secret, volumes[0].secret.secretName)

  const [{ data }] = kubernetes('configmap')
  for (const { name, value } of paths) {
    writeFileSync(join(folder, basename(value)), files.get(basename(value)) ?? '')
    data[name] = join(folder, basename(value))
  }
  const parsed = parseConfig(data)
  t.strictSame(parsed.ok ? parsed.warnings : parsed.faults, [])
})

t.test('the commands that change a secret keep the other ones, and leave no file behind', async (t) => {
  const folder = makeFolder('secret')
  // Instead of the cluster and the editor: stores the files, and appends a new secret.
  const programs = `set -o pipefail
  kubectl() {
    case $1 in
      get) [ "$2 $3 $4" = 'secret token-handler-bff -o' ]; name=\${5#jsonpath=\\{.data.}; printf %s "old-\${name%\\}}" | base64;;
      create) for file in secrets/*; do printf '%s %s\\n' "\${file#secrets/}" "$(cat "$file")"; done;;
      apply) cat;;
    esac
  }
  nano() { printf ,new >> "$1"; }`
  const commands = codeBlock(PAGE, 'Change a secret on Kubernetes', 'sh').trim()
  t.strictSame(run([programs, commands], folder, 'bash').trim().split('\n').sort(), [
    'client-secret old-client-secret',
    'redis-url old-redis-url',
    'session-secret old-session-secret,new',
  ])
  t.strictSame(readdirSync(folder), [])
})

t.test('the image with a page begins with the image that is pushed; its folder is STATIC_DIR', async (t) => {
  const image = codeBlock(PAGE, 'The page on Kubernetes', 'text')
  const [, from, target] = /^FROM (\S+)\nCOPY page (\S+)\n$/.exec(image) ?? []
  t.ok(commandsBelow('Kubernetes').includes(`docker push ${from}`), 'FROM')
  t.ok(read(PAGE).includes(`\`STATIC_DIR: ${target}\``), 'COPY')
})

t.test('docker and kubectl commands of all pages name services, images and objects that exist', async (t) => {
  const text = PAGES.map(read).join('\n')
  const commands = [...text.matchAll(/\b(?:docker|kubectl) [^`\n]+/g)].map(([line]) =>
    line.replace(/ +#.*$/, ''),
  )
  const { services } = parse(read('docker-compose.yml'), { merge: true })
  const { images } = parse(read('deploy/kubernetes/kustomization.yaml'))
  const dockerfile = read('Dockerfile')
  const [{ metadata }] = kubernetes('deployment')
  let checked = 0
  const each = (pattern: RegExp, check: (...groups: string[]) => void) => {
    for (const command of commands) {
      const found = pattern.exec(command)
      if (found === null) continue
      checked += 1
      check(...found.slice(1))
    }
  }
  // test/repository/commands.test.ts looks for the programs.
  each(/^docker compose exec (\S+) node dist\//, (service) => t.ok(services[service!], service))
  each(/^kubectl exec deploy\/(\S+) -- node dist\//, (name) => t.equal(name, metadata.name))
  each(/^docker (?:build -t|push) registry\.example\/(\S+):(\S+)/, (name, tag) => {
    t.equal(name, images[0].name)
    t.equal(tag, images[0].newTag)
  })
  each(/^docker build -t (\w[\w-]*) \.$/, (name) => t.equal(name, services.server.image))
  each(/^docker run .*-p \d+:(\d+) .* (\S+)$/, (port, name) => {
    t.match(dockerfile, new RegExp(`^EXPOSE .*\\b${port}\\b`, 'm'))
    t.equal(name, services.server.image)
  })
  t.ok(checked >= 8, `${checked} commands`)
})
