import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Teardown, toolPath } from '../child.ts'
import { makeFolder } from '../watchdog.ts'
import { debianEnv } from './packages.ts'
import { createProgram, freeOrigin } from './program.ts'
import { CREDENTIALS, decideByForms, type RealServer, withBearer } from './real-server.ts'

/** The portal loads what Debian only recommends beside it, too. */
export const PACKAGES = [
  ...['liblemonldap-ng-portal-perl', 'libplack-perl', 'libcache-cache-perl', 'libgd-securityimage-perl'],
  ...['libcrypt-openssl-rsa-perl', 'libcrypt-openssl-bignum-perl', 'libconvert-base32-perl'],
  ...['libstring-random-perl', 'libemail-sender-perl', 'libmime-tools-perl', 'libio-string-perl'],
  ...['libgd-perl', 'libimage-magick-perl'],
]

/** LemonLDAP::NG with its demonstration accounts, whose passwords are their names. */
export async function startLemonldap(t: Teardown, root: string, callback: string): Promise<RealServer> {
  const folder = makeFolder('lemonldap')
  const within = (name: string) => join(folder, name)
  for (const name of ['conf', 'cache', 'sessions/lock', 'psessions/lock'])
    mkdirSync(within(name), { recursive: true })
  const { origin, port } = await freeOrigin()
  execFileSync(toolPath('openssl'), ['genrsa', '-out', within('key.pem'), '2048'], { stdio: 'ignore' })
  execFileSync(toolPath('openssl'), ['rsa', '-in', within('key.pem'), '-pubout', '-out', within('pub.pem')], {
    stdio: 'ignore',
  })
  writeFileSync(
    within('lemonldap-ng.ini'),
    `[all]
checkTime = 1
[configuration]
type = File
dirName = ${within('conf')}
localStorage = Cache::FileCache
localStorageOptions = { 'namespace' => 'config', 'default_expires_in' => 600, 'cache_root' => '${within('cache')}', 'cache_depth' => 3 }
[portal]
staticPrefix = /static
templateDir = ${join(root, 'usr/share/lemonldap-ng/portal/templates')}
languages = en
`,
  )
  const shipped = JSON.parse(
    readFileSync(join(root, 'var/lib/lemonldap-ng/conf/lmConf-1.json'), 'utf8'),
  ) as object
  const storage = (name: string) => ({
    ...{ Directory: within(name), LockDirectory: within(`${name}/lock`) },
    generateModule: 'Lemonldap::NG::Common::Apache::Session::Generate::SHA256',
  })
  const start = createProgram(t)
  const setLife = async (seconds: number): Promise<void> => {
    const client = {
      ...{ oidcRPMetaDataOptionsClientID: CREDENTIALS.CLIENT_ID, oidcRPMetaDataOptionsRefreshToken: 1 },
      ...{
        oidcRPMetaDataOptionsClientSecret: CREDENTIALS.CLIENT_SECRET,
        oidcRPMetaDataOptionsBypassConsent: 0,
      },
      ...{ oidcRPMetaDataOptionsRedirectUris: callback, oidcRPMetaDataOptionsIDTokenSignAlg: 'RS256' },
      oidcRPMetaDataOptionsAccessTokenExpiration: seconds,
    }
    const configuration = {
      ...shipped,
      ...{ portal: `${origin}/`, domain: '127.0.0.1', requireToken: 0, notification: 0 },
      ...{ globalStorageOptions: storage('sessions'), persistentStorageOptions: storage('psessions') },
      localSessionStorageOptions: {
        ...{ cache_root: within('cache'), cache_depth: 3, default_expires_in: 600, namespace: 'sessions' },
      },
      ...{ issuerDBOpenIDConnectActivation: 1, oidcServiceAllowAuthorizationCodeFlow: 1 },
      ...{ oidcServicePrivateKeySig: readFileSync(within('key.pem'), 'utf8'), oidcServiceKeyIdSig: 'k1' },
      ...{ oidcServicePublicKeySig: readFileSync(within('pub.pem'), 'utf8') },
      oidcRPMetaDataOptions: { bff: client },
      oidcRPMetaDataExportedVars: { bff: { email: 'mail', name: 'cn' } },
    }
    writeFileSync(within('conf/lmConf-1.json'), JSON.stringify(configuration))
    await start({
      // One process: the workers of another server would outlive it.
      command: 'plackup',
      args: [
        ...['--server', 'Standalone', '--host', '127.0.0.1', '--port', port],
        join(root, 'usr/share/lemonldap-ng/portal/htdocs/index.psgi'),
      ],
      env: { ...debianEnv(root), LLNG_DEFAULTCONFFILE: within('lemonldap-ng.ini'), LLTYPE: 'psgi' },
      url: `${origin}/.well-known/openid-configuration`,
    })
  }
  await setLife(600)
  return {
    origin,
    env: CREDENTIALS,
    accounts: ['dwho', 'rtyler'],
    guard: withBearer(`${origin}/oauth2/userinfo`),
    decide: decideByForms({
      signIn: (account) => ({ form: /name="password"/, values: { user: account, password: account } }),
      choose(accepts, { text }) {
        const confirm = /name="confirm" value="([^"]+)"/.exec(text)?.[1] ?? ''
        return accepts ? {} : { values: { confirm: `-${confirm}` } }
      },
    }),
    async withdraw(visitor) {
      await visitor.go(`${origin}/?logout=1`)
    },
    setLife,
  }
}
