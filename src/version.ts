import { readFileSync } from 'node:fs'

/** Version of the package; `unknown` where package.json was left out of a copy. */
export const VERSION = readPackageVersion()

/** How this server names itself to the resource server. */
export const USER_AGENT = `token-handler-bff/${VERSION}`

/** Commit that was built; `unknown` where the build could not tell. */
export const REVISION = read('./revision.txt')?.trim() || 'unknown'

/** Answers `--help` and `--version` and ends the process. Any other argument ends it with exit code 2. */
export function handleHelpAndVersion(args: readonly string[], help: string): void {
  const [first, ...more] = args
  if (first === undefined) return
  if (more.length === 0 && (first === '--help' || first === '-h')) process.stdout.write(help)
  else if (more.length === 0 && first === '--version') process.stdout.write(`${VERSION}\n`)
  else {
    process.stderr.write(`The argument ${JSON.stringify(args.join(' '))} is not known.\n\n${help}`)
    process.exit(2)
  }
  process.exit(0)
}

function readPackageVersion(): string {
  const text = read('../package.json')
  return text === null ? 'unknown' : (JSON.parse(text) as { version: string }).version
}

function read(path: string): string | null {
  try {
    return readFileSync(new URL(path, import.meta.url), 'utf8')
  } catch {
    return null
  }
}
