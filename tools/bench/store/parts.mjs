// The parts of the server that the worker uses, bundled as in dist/.
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { build } from 'esbuild'
import { MAIN, ROOT } from '../machine.mjs'

const PARTS = {
  parseConfig: 'config/config.ts',
  createKeyring: 'keyring.ts',
  createAuthorizationServer: 'oauth/client.ts',
  createRedisStore: 'store/redis/store.ts',
  createSessionCookies: 'session/cookies.ts',
  openTokens: 'session/sealed-tokens.ts',
  sealTokens: 'session/sealed-tokens.ts',
  Secret: 'secret.ts',
  SYSTEM_CLOCK: 'clock.ts',
}

/** The exports of `src/` that `PARTS` names. */
export async function importParts() {
  const contents = Object.entries(PARTS).map(([name, file]) => `export { ${name} } from './src/${file}'`)
  // Beside dist/ and not in it: a release packs that folder.
  const folder = join(ROOT, `dist.bench-${process.pid}`)
  const outfile = join(folder, 'parts.mjs')
  await build({
    stdin: { contents: contents.join('\n'), resolveDir: ROOT },
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'node',
    packages: 'external',
    // The store reads its scripts from dist/.
    define: { 'import.meta.url': JSON.stringify(pathToFileURL(MAIN).href) },
  })
  try {
    return await import(pathToFileURL(outfile).href)
  } finally {
    rmSync(folder, { recursive: true })
  }
}
