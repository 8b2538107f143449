import { readFileSync } from 'node:fs'
import { DOCTOR_HELP, examine, parseDoctorArguments, toLine } from './operator/doctor.ts'

const SOUND = 0
const BROKEN = 1
const WRONG = 2

// The Redis client warns in plain text about a missing right, which the report names as well.
console.warn = () => {}

async function main(): Promise<number> {
  const command = parseDoctorArguments(process.argv.slice(2))
  switch (command.kind) {
    case 'help':
      process.stdout.write(DOCTOR_HELP)
      return SOUND
    case 'version':
      process.stdout.write(`${version()}\n`)
      return SOUND
    case 'wrong':
      process.stderr.write(`${command.message}\nFor the options: node dist/doctor.js --help\n`)
      return WRONG
    case 'check': {
      const { verdicts, isFaulty } = await examine(process.env)
      for (const verdict of verdicts)
        process.stdout.write(`${command.json ? JSON.stringify(verdict) : toLine(verdict)}\n`)
      if (isFaulty) return WRONG
      return verdicts.some(({ verdict }) => verdict === 'fault') ? BROKEN : SOUND
    }
  }
}

function version(): string {
  const manifest = readFileSync(new URL('../package.json', import.meta.url), 'utf8')
  return (JSON.parse(manifest) as { version: string }).version
}

process.exitCode = await main()
