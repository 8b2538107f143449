import { join } from 'node:path'
import { ROOT } from '../../repository/files.ts'
import { type Child, startChild, type Teardown, waitForOutput } from '../child.ts'
import { freePort } from '../ports.ts'
import { CREDENTIALS, type RealServer, withBearer } from './real-server.ts'

interface Options {
  readonly callback: string
  /** One-use refresh tokens, of which a second use ends the grant; and PKCE is required. */
  readonly rotates?: boolean
}

/** oidc-provider, from npm. */
export async function startOidcProvider(
  t: Teardown,
  { callback, rotates = false }: Options,
): Promise<RealServer> {
  let port = await freePort()
  let child: Child | null = null
  const start = async (life: number): Promise<void> => {
    await child?.stop('SIGKILL')
    for (;;) {
      const argument = JSON.stringify({ port, client: CREDENTIALS, callback, life, rotates })
      child = startChild(t, process.execPath, ['test/helpers/servers/oidc-provider.mjs', argument], {
        cwd: join(ROOT),
      })
      if ((await waitForOutput(child, (output) => /listening/.exec(output))) !== null) return
      if (!child.output().includes('EADDRINUSE')) throw new Error(child.output())
      port = await freePort()
    }
  }
  await start(600)
  const origin = `http://127.0.0.1:${port}`
  return {
    origin,
    env: CREDENTIALS,
    accounts: ['alice', 'bob'],
    guard: withBearer(`${origin}/me`),
    async decide(visitor, authorizeUrl, { account, accepts }) {
      let page = await visitor.go(authorizeUrl)
      while (!page.isBack && page.status === 200) {
        const abort = /href="([^"]+\/abort)"/.exec(page.text)?.[1]
        page = accepts
          ? await visitor.submit(page, {
              values: page.text.includes('name="login"') ? { login: account, password: 'any' } : {},
            })
          : await visitor.go(new URL(abort ?? '', page.url).href)
      }
      return page.isBack ? page.url : null
    },
    async withdraw() {
      await fetch(`${origin}/withdraw/alice`)
    },
    setLife: start,
  }
}
