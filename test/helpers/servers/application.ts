import type { Teardown } from '../child.ts'
import { makeFolder } from '../watchdog.ts'
import { createProgram, freeOrigin, type Program } from './program.ts'
import { CREDENTIALS, PASSWORD, type RealServer, withBearer } from './real-server.ts'

interface Options {
  readonly callback: string
  /** Path of its sign-in page, which answers once it works. */
  readonly signIn: string
  /** How it runs at this port, with its data in this folder. */
  program(port: string, data: string): Omit<Program, 'url'>
}

/** A small application of this folder around a library, on SQLite. It learns from its environment where and for whom it runs. */
export async function startApplication(
  t: Teardown,
  { callback, signIn, program }: Options,
): Promise<Omit<RealServer, 'decide' | 'withdraw'>> {
  const data = makeFolder('server')
  const { origin, port } = await freeOrigin()
  const { env, ...rest } = program(port, data)
  const start = createProgram(t)
  const common = { FOLDER: data, ...CREDENTIALS, CALLBACK: callback, PASSWORD }
  const setLife = (seconds: number): Promise<void> =>
    start({ ...rest, env: { ...env, ...common, LIFE: String(seconds) }, url: origin + signIn })
  await setLife(600)
  return {
    origin,
    env: CREDENTIALS,
    accounts: ['alice', 'bob'],
    guard: withBearer(`${origin}/data`),
    setLife,
  }
}
