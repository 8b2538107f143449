// Servers and tools of other ecosystems, fetched by the usual client of each into a folder of the clone, which later runs
// use again: nothing is installed on the machine, and no service is started.

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { ROOT } from '../../repository/files.ts'

const CACHE = join(ROOT, 'node_modules/.cache/servers')

/** A folder, and why what was asked for is not to be had here, for the reason of a skipped test; false: it is there. */
export interface Fetched {
  readonly folder: string
  readonly lacks: string | false
}

/** Debian packages of these names and what they need besides, unpacked. */
export function unpackDebian(name: string, packages: readonly string[]): Fetched {
  return once(`debian-${name}`, packages.join('\n'), (folder) => {
    const archives = join(folder, 'archives')
    mkdirSync(join(archives, 'partial'), { recursive: true })
    const options = ['-o', `Dir::Cache::Archives=${archives}`, '-o', 'Debug::NoLocking=true', '-qq', '-y']
    const download = [...options, '--no-install-recommends', '--reinstall', '--download-only', 'install']
    if (!runs('apt-get', [...download, ...packages])) {
      runs('apt-get', ['-qq', 'update'])
      if (!runs('apt-get', [...download, ...packages])) return `apt-get has no ${packages.join(', ')}`
    }
    for (const file of readdirSync(archives).filter((name) => name.endsWith('.deb')))
      if (!runs('dpkg', ['-x', join(archives, file), folder])) return `dpkg does not unpack ${file}`
    rmSync(archives, { recursive: true })
    return false
  })
}

/** The environment in which programs of unpacked Debian packages find their parts. */
export function debianEnv(folder: string): Record<string, string> {
  const within = (...patterns: string[]) =>
    patterns.flatMap((pattern) => foldersLike(folder, pattern.split('/'))).join(delimiter)
  return {
    HOME: folder,
    PATH: [join(folder, 'usr/bin'), join(folder, 'usr/sbin'), process.env.PATH].join(delimiter),
    LD_LIBRARY_PATH: within('usr/lib/*-linux-gnu', 'lib/*-linux-gnu'),
    PERL5LIB: within('usr/share/perl5', 'usr/lib/*-linux-gnu/perl5/*', 'usr/share/perl/*'),
    RUBYLIB: within(
      ...['usr/lib/ruby/vendor_ruby', 'usr/lib/ruby/vendor_ruby/*.*', 'usr/lib/ruby/[0-9]*'],
      ...['usr/lib/*-linux-gnu/ruby/vendor_ruby/*', 'usr/lib/*-linux-gnu/ruby/[0-9]*'],
    ),
    GEM_PATH: within(
      ...[
        'usr/share/rubygems-integration/*',
        'usr/lib/*-linux-gnu/rubygems-integration/*',
        'usr/lib/ruby/gems/*',
      ],
    ),
  }
}

/** The folders below this one whose path has these names, in which `*` is any text. */
function foldersLike(folder: string, [name, ...names]: readonly string[]): string[] {
  if (name === undefined) return [folder]
  const pattern = new RegExp(`^${name.replaceAll('.', '\\.').replaceAll('*', '.*')}$`)
  const found = existsSync(folder) ? readdirSync(folder, { withFileTypes: true }) : []
  return found
    .filter((entry) => !entry.isFile() && pattern.test(entry.name))
    .flatMap((entry) => foldersLike(join(folder, entry.name), names))
}

/** A virtual environment of Python with these packages. */
export function installPython(name: string, packages: readonly string[]): Fetched {
  return once(`python-${name}`, packages.join('\n'), (folder) => {
    if (!runs('python3', ['-m', 'venv', folder])) return 'python3 -m venv does not run'
    const installed = runs(join(folder, 'bin/pip'), ['install', '--quiet', ...packages])
    return !installed && `pip does not install ${packages.join(', ')}`
  })
}

/** A zip file of Maven, unpacked. */
export function unpackMaven(name: string, artifact: string): Fetched {
  return once(`maven-${name}`, artifact, (folder) => {
    const copy = ['-q', '-B', 'dependency:copy', `-Dartifact=${artifact}`, `-DoutputDirectory=${folder}`]
    if (!runs('mvn', copy)) return `mvn does not fetch ${artifact}`
    const [file] = readdirSync(folder)
    return !runs('unzip', ['-q', join(folder, file ?? ''), '-d', folder]) && 'unzip does not run'
  })
}

/** The jar files that this project of Maven needs to run. */
export function copyMaven(name: string, pom: string): Fetched {
  return once(`maven-${name}`, readFileSync(pom, 'utf8'), (folder) => {
    const copy = ['-q', '-B', '-f', pom, 'dependency:copy-dependencies', '-DincludeScope=runtime']
    return !runs('mvn', [...copy, `-DoutputDirectory=${folder}`]) && `mvn does not fetch what ${name} needs`
  })
}

/** Makes the folder, unless an earlier run has, of the same `content`. `make` returns why it cannot. */
function once(name: string, content: string, make: (folder: string) => string | false): Fetched {
  const folder = join(CACHE, name)
  const done = join(folder, 'is-complete')
  if (existsSync(done) && readFileSync(done, 'utf8') === content) return { folder, lacks: false }
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  const lacks = make(folder)
  if (lacks === false) writeFileSync(done, content)
  return { folder, lacks }
}

function runs(program: string, args: readonly string[]): boolean {
  return spawnSync(program, args, { stdio: ['ignore', 'ignore', 'inherit'] }).status === 0
}
