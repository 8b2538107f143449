// Programs of another release of Debian than this machine's, unpacked into a folder and run with their own libraries.

import { chmodSync, mkdirSync, readdirSync, realpathSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { startChild, type Teardown } from '../helpers/child.ts'
import { makeFolder } from '../helpers/watchdog.ts'

const KEYS = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** The output of a program. Throws with it if the program fails. */
async function run(t: Teardown, command: string, args: readonly string[]): Promise<string> {
  const child = startChild(t, command, args, {
    env: { PATH: process.env.PATH ?? '', DEBIAN_FRONTEND: 'noninteractive' },
  })
  const { code } = await child.ended
  if (code !== 0) throw new Error(`${command} ${args.at(-1)}: ${child.output().trim().slice(-600)}`)
  return child.stdout()
}

/** The archive that this machine takes its own packages from. Throws where it is no Debian. */
async function archive(t: Teardown): Promise<string> {
  const format = ['--format', '$(ORIGIN) $(LABEL) $(REPO_URI)', 'Created-By: Packages']
  const targets = (await run(t, 'apt-get', ['indextargets', ...format])).split('\n')
  const found = targets.find((line) => line.startsWith('Debian Debian http'))
  if (found === undefined) throw new Error('this machine knows no archive of Debian')
  return found.split(' ')[2]!
}

/** But for links that lead out of the folder. */
function filesBelow(folder: string, name: RegExp): string[] {
  const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((each) => join(folder, each))
  return paths.filter((path) => name.test(path) && isInside(folder, path))
}

function isInside(folder: string, path: string): boolean {
  try {
    return realpathSync(path).startsWith(`${realpathSync(folder)}/`) && statSync(path).isFile()
  } catch {
    return false
  }
}

/**
 * The path of a script that runs a program of this package as the release has it (`trixie`). Throws where apt-get, the
 * archive or the package is missing.
 */
export async function unpackProgram(
  t: Teardown,
  { release, name, program }: { release: string; name: string; program: string },
): Promise<string> {
  const folder = makeFolder(`debian-${release}`)
  const root = join(folder, 'root')
  const path = (...parts: string[]) => join(folder, ...parts)
  for (const each of ['state/lists/partial', 'cache/archives/partial', 'root'])
    mkdirSync(path(each), { recursive: true })
  writeFileSync(path('status'), '')
  writeFileSync(path('sources.list'), `deb [signed-by=${KEYS}] ${await archive(t)} ${release} main\n`)
  const own = {
    'Dir::Etc::sourcelist': path('sources.list'),
    'Dir::Etc::sourceparts': '-',
    'Dir::State': path('state'),
    'Dir::State::status': path('status'),
    'Dir::Cache': path('cache'),
    'APT::Sandbox::User': 'root',
    'Acquire::Languages': 'none',
  }
  const options = Object.entries(own).flatMap(([key, value]) => ['-o', `${key}=${value}`])
  await run(t, 'apt-get', [...options, '-qq', 'update'])
  const install = ['-qq', 'install', '--download-only', '--yes', '--no-install-recommends', name]
  await run(t, 'apt-get', [...options, ...install])
  for (const file of filesBelow(path('cache/archives'), /\.deb$/)) await run(t, 'dpkg', ['-x', file, root])
  const [loader] = filesBelow(root, /\/ld-linux[^/]*\.so\.\d+$/)
  const [binary] = filesBelow(root, new RegExp(`/bin/${program}$`))
  if (loader === undefined || binary === undefined) throw new Error(`${name} has no ${program}`)
  const libraries = [...new Set(filesBelow(root, /-linux-gnu\/[^/]*\.so[.\d]*$/).map(dirname))].join(':')
  const script = path(program)
  writeFileSync(
    script,
    `#!/bin/sh\nexec ${loader} --argv0 ${program} --library-path ${libraries} ${binary} "$@"\n`,
  )
  chmodSync(script, 0o755)
  return script
}
