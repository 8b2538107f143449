import { allowSlowAddresses } from '../src/process/addresses.ts'
import { VERSION } from '../src/version.ts'
import { DOCTOR_HELP, examine, parseDoctorArguments } from './examine.ts'
import { toText } from './report.ts'

const SOUND = 0
const BROKEN = 1
const WRONG = 2
const INTERRUPTED = 130

// The Redis client warns in plain text about a missing right, which the report names as well.
console.warn = () => {}
allowSlowAddresses()

async function main(): Promise<number> {
  const command = parseDoctorArguments(process.argv.slice(2))
  switch (command.kind) {
    case 'help':
      process.stdout.write(DOCTOR_HELP)
      return SOUND
    case 'version':
      process.stdout.write(`${VERSION}\n`)
      return SOUND
    case 'wrong':
      process.stderr.write(`${command.message}\nFor the options: node dist/doctor.js --help\n`)
      return WRONG
    case 'check': {
      const { findings, isFaulty } = await examine(process.env)
      for (const finding of findings)
        process.stdout.write(`${command.json ? JSON.stringify(finding) : toText(finding)}\n`)
      if (isFaulty) return WRONG
      return findings.some(({ verdict }) => verdict === 'fault') ? BROKEN : SOUND
    }
    case 'live': {
      const { runLive } = await import('./measure/live.ts')
      const stop = new AbortController()
      for (const signal of ['SIGINT', 'SIGTERM'] as const)
        process.on(signal, () => (stop.signal.aborted ? process.exit(INTERRUPTED) : stop.abort()))
      const code = await runLive(process.env, command, {
        input: process.stdin,
        out: (line) => void process.stdout.write(`${line}\n`),
        error: (line) => void process.stderr.write(`${line}\n`),
        stop: stop.signal,
      })
      process.stdin.destroy()
      return code
    }
  }
}

process.exitCode = await main()
