// What every program of the benchmark does: flags, the services it measures against, faults.
import { moveToLoad } from './machine.mjs'
import { requireServer } from './places.mjs'
import { createProcesses } from './processes.mjs'

/** Progress goes to stderr, so that stdout has the results alone. */
export const say = (line) => process.stderr.write(`${line}\n`)

/** Prints `help`, or runs the program with the options that `read` returns. A fault is printed and sets the exit code 1. */
export async function runProgram({ help, read, run }) {
  try {
    const options = read()
    if (options.help) console.log(help)
    else await run(options)
  } catch (error) {
    say(error instanceof Error ? (error.stack ?? error.message) : String(error))
    process.exitCode = 1
  }
}

/** The numbers that the flags give, each above 0; `usual` has the flags with their defaults. Throws an Error for the user. */
export function readNumbers(values, usual) {
  const numbers = Object.entries(usual).map(([name, value]) => [name, Number(values[name] ?? value)])
  for (const [name, value] of numbers) if (!(value > 0)) throw new Error(`--${name} must be a number above 0`)
  return Object.fromEntries(numbers)
}

/** Runs `work` with Redis and both servers of the platform on the cores of the load, and ends all processes after it. */
export async function withServices(work) {
  requireServer()
  moveToLoad()
  const processes = createProcesses()
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => void processes.end().finally(() => process.exit(1)))
  }
  try {
    // Late, so that a missing program is named first.
    const { startServices } = await import('./services.mjs')
    const services = await startServices(processes)
    await work(services).finally(services.close)
  } finally {
    await processes.end()
  }
}
