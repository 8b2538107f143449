import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import { DOCTOR_HELP, examine, parseDoctorArguments } from '../../operator/examine.ts'
import { toText } from '../../operator/report.ts'
import { startConnectProxy } from '../helpers/connect-proxy.ts'
import { freePort, listenOnLoopback } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { startCluster, startSentinelGroup } from '../helpers/redis-groups.ts'
import { CLIENT, platformEnv, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { startProxy } from '../helpers/tcp-proxy.ts'
import { until } from '../helpers/wait.ts'
import { type Env, type Run, run, SESSION_SECRET } from './run.ts'

/** The report of the built command. */
async function doctorProcess(t: Test, env: Env, ...args: string[]): Promise<Run> {
  return withoutSecrets(await run(t, 'doctor.js', env, ...args), env)
}

/** The report of this process: starting one takes most of the time. */
async function doctor(env: Env): Promise<Run> {
  const { findings, isFaulty } = await examine(env)
  const isBroken = findings.some(({ verdict }) => verdict === 'fault')
  const code = isFaulty ? 2 : isBroken ? 1 : 0
  return withoutSecrets(
    { code, lines: findings.flatMap((found) => toText(found).split('\n')), stderr: '' },
    env,
  )
}

function withoutSecrets(report: Run, env: Env): Run {
  const text = [...report.lines, report.stderr].join('\n')
  const passwords = [env.REDIS_URL, env.HTTP_PROXY].map((url = '') => /:([^:@/]+)@/.exec(url)?.[1])
  for (const secret of [env.CLIENT_SECRET, env.SESSION_SECRET, ...passwords])
    if (secret && text.includes(secret)) throw new Error('a secret is printed')
  return report
}

/** Asserts that exactly these checks report a fault, each in one line with these words, and that the exit code is 1. */
function finds(t: Test, report: Run, faults: Record<string, RegExp>): void {
  t.match(report, { code: 1, stderr: '' })
  const found = report.lines.filter((line) => line.startsWith('FAULT'))
  t.strictSame(
    found.map((line) => line.slice(6, 26).trim()),
    Object.keys(faults),
    report.lines.join('\n'),
  )
  for (const [at, words] of Object.values(faults).entries()) t.match(found[at], words)
}

/** What the first group of this pattern has in the report. */
function secondsIn(report: Run, pattern: RegExp): number {
  return Number(pattern.exec(report.lines.join('\n'))?.[1])
}

const SERVER_PREFIX = 'server:'

/** A Redis, a platform and a server, and their environment. The server has a prefix of its own, which tells its keys from the doctor's. */
async function deployment(t: Test) {
  const [redis, sandbox] = await Promise.all([startRedis(t), startSandbox(t)])
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url, REDIS_PREFIX: SERVER_PREFIX })
  await untilReady(bff)
  const env = {
    PUBLIC_URL: bff.publicUrl,
    ...platformEnv(sandbox),
    SESSION_SECRET,
    REDIS_URL: redis.url,
  }
  return { redis, sandbox, env }
}

t.test('a store is called by its own name and version, and a Redis before 6.2 is a fault', async (t) => {
  const { redis, env } = await deployment(t)
  const saying = async (field: string, version: string) => {
    // As long as what it replaces: the length is sent before.
    const proxy = await startProxy(t, redis.port, (data) => {
      const text = data.toString('latin1')
      const changed = text.replace(/^redis_version:.*?\r$/m, (line) => {
        const length = line.length - field.length - 2
        return `${field}:${version.padEnd(length, '0').slice(0, length)}\r`
      })
      return Buffer.from(changed, 'latin1')
    })
    return await doctor({ ...env, REDIS_URL: `redis://127.0.0.1:${proxy.port}` })
  }
  const valkey = await saying('valkey_version', '9.1.2')
  t.equal(valkey.code, 0, valkey.lines.join('\n'))
  t.match(valkey.lines.join('\n'), /^ok +Redis +one server, Valkey 9\.1\.\d+, /m)
  t.equal((await saying('redis_version', '6.2.0')).code, 0)
  finds(t, await saying('redis_version', '6.0.16'), {
    version: /Redis 6\.0\.\d+ is older than Redis 6\.2/,
  })
})

t.test('a sound deployment', async (t) => {
  const { redis, sandbox, env } = await deployment(t)

  await t.test('lists the declared operations, and warns of those that permit much', async (t) => {
    const path = '/{wac}/things'
    const operations = {
      ListThings: { method: 'GET', path },
      DeleteThings: { method: 'DELETE', path },
      WriteThings: { method: 'PUT', path, body: 'any' },
      WriteOthers: { method: 'PUT', path: '/{wac}/others', body: { schema: { type: 'object' } } },
      ListWUMs: { method: 'GET', path: '/WUM', account: 'none' },
      PutForm: { method: 'PUT', path: '/{wac}/forms', body: { types: ['multipart/form-data'], limit: 10 } },
      ListOpen: { method: 'GET', path: '/{wac}/open', application: true },
    }
    const folder = t.testdir({ 'operations.json': JSON.stringify({ operations }) })
    const OPERATIONS_FILE = `${folder}/operations.json`
    const { lines } = await doctor({ ...env, OPERATIONS_FILE, OAUTH_FLOWS: 'code,client' })
    t.match(
      lines.filter((line) => line.slice(6, 26).trim() === 'operation'),
      [
        /^ok .*ListThings: GET \/\{wac\}\/things$/,
        /^warn .*DeleteThings: DELETE .*deletes/,
        /^warn .*WriteThings: PUT .*takes any body/,
        /^warn .*WriteOthers: PUT .*takes any body/,
        /^warn .*ListWUMs: GET \/WUM belongs to no account/,
        /^warn .*PutForm: PUT .*passes on forms/,
        /^warn .*ListOpen: GET .*without a session too is public in every account/,
      ],
    )
    const origin = lines.find((line) => line.includes('public origin'))
    t.match(origin, /below \/data|leads to this server/)
    const faulty = await doctor({ ...env, OPERATIONS_FILE: `${folder}/none.json` })
    t.match(faulty, { code: 2, lines: [/FAULT configuration +OPERATIONS_FILE must be a file/] })
  })

  await t.test('sends UPSTREAM_HEADERS to the resource server alone', async (t) => {
    const { journal } = sandbox
    journal.clear()
    const report = await doctor({ ...env, UPSTREAM_HEADERS: '{"X-Api-Key":"s3cret-key"}' })
    t.equal(report.code, 0, report.lines.join('\n'))
    t.notMatch(report.lines.join('\n'), /s3cret/)
    const carried = journal.entries().map(({ endpoint, headers }) => [endpoint, headers['x-api-key'] ?? ''])
    t.strictSame(
      carried.filter(([, key]) => key !== ''),
      [['resource', 's3cret-key']],
    )
    t.ok(carried.length > 1, 'the authorization server was called too')
    journal.clear()
  })

  await t.test('has only good verdicts and exit code 0, and nothing is left behind', async (t) => {
    const keys = async () =>
      (await redis.cli('KEYS', '*')).split('\n').filter((key) => key !== '' && !key.startsWith(SERVER_PREFIX))
    const before = await keys()
    const report = await doctorProcess(t, env, '--json')
    t.match(report, { code: 0, stderr: '' }, report.lines.join('\n'))
    const verdicts = report.lines.map((line) => JSON.parse(line) as Record<string, string>)
    for (const one of verdicts)
      t.strictSame(Object.keys(one), ['check', 'verdict', 'value', 'message', 'setting'])
    const checks = ['configuration', 'Redis', 'eviction', 'rights', 'client', 'sign-in page']
    t.strictSame(
      verdicts.map(({ verdict, check }) => [verdict, check]),
      [...checks, 'resource server', 'public origin', 'clocks'].map((check) => ['ok', check]),
    )
    t.match(verdicts[1], { message: /one server, (Redis|Valkey) \d+\.\d+\.\d+, AOF off/ })
    t.strictSame(await keys(), before)
    const sent = sandbox.journal.entries({ endpoint: 'token' })
    t.strictSame(
      sent.map(({ outcome }) => outcome),
      ['invalid_grant', 'invalid_grant', 'invalid_client'],
      'the platform issued nothing, and one wrong secret was presented once',
    )
  })

  const nobody = `http://127.0.0.1:${await freePort()}`
  const quoted = { client: /CLIENT_SECRET begins and ends with a quote/ }
  const unreached = (name: string) => new RegExp(`cannot be reached \\(ECONNREFUSED\\): check ${name}`)
  const withoutTls = (name: string) => new RegExp(`speaks no TLS .*check port and scheme of ${name}`)
  const cases: [what: string, change: Env, faults: Record<string, RegExp>][] = [
    [
      'a wrong client secret',
      { CLIENT_SECRET: 'another-secret' },
      {
        client:
          /401 invalid_client\): CLIENT_SECRET or CLIENT_ID is wrong, or .* client_secret_post, or .*: check its health first$/,
      },
    ],
    ['a client secret in quotes', { CLIENT_SECRET: `"${CLIENT.clientSecret}"` }, quoted],
    [
      'a callback on a host that is not registered',
      { PUBLIC_URL: env.PUBLIC_URL.replace('localhost', '127.0.0.1') },
      { 'sign-in page': /registered callback must be on the host of PUBLIC_URL.*OAUTH_REDIRECT=fixed/ },
    ],
    [
      'a wrong AUTH_URL',
      { AUTH_URL: `${env.AUTH_URL}/wrong` },
      {
        client: /not a token endpoint.*404.*check AUTH_URL/,
        'sign-in page': /no sign-in page.*404.*check AUTH_URL/,
      },
    ],
    [
      'a platform that is down',
      { AUTH_URL: nobody, BASE_URL: nobody },
      {
        client: unreached('AUTH_URL'),
        'sign-in page': unreached('AUTH_URL'),
        'resource server': unreached('BASE_URL'),
      },
    ],
    [
      'https at a port that speaks http',
      {
        AUTH_URL: env.AUTH_URL.replace('http:', 'https:'),
        BASE_URL: env.BASE_URL.replace('http:', 'https:'),
      },
      {
        client: withoutTls('AUTH_URL'),
        'sign-in page': withoutTls('AUTH_URL'),
        'resource server': withoutTls('BASE_URL'),
      },
    ],
  ]
  for (const [what, change, faults] of cases)
    await t.test(`finds ${what}`, async (t) => finds(t, await doctor({ ...env, ...change }), faults))

  await t.test('finds Redis down and refused credentials', async (t) => {
    const down = await doctor({ ...env, REDIS_URL: `redis://:pa55word@127.0.0.1:${await freePort()}` })
    finds(t, down, { Redis: /cannot be reached \(.*ECONNREFUSED.*\): check REDIS_URL/ })
    const locked = await startRedis(t, { password: 'the-right-password' })
    const url = locked.url.replace('the-right-password', 'a-wrong-password')
    finds(t, await doctor({ ...env, REDIS_URL: url }), { Redis: /refused the credentials.*REDIS_URL/ })
    const other = await doctor({ ...env, REDIS_URL: `${redis.url}/99` })
    finds(t, other, { Redis: /the database \(database 99 is refused.*REDIS_URL/ })
  })

  await t.test('finds a Redis that takes no writes', async (t) => {
    await redis.cli('CONFIG', 'SET', 'maxmemory', '1')
    const full = await doctor(env)
    await redis.cli('CONFIG', 'SET', 'maxmemory', '0')
    finds(t, full, { rights: /Redis takes no writes \(.*OOM .*\): give it memory/ })
  })

  await t.test('finds an ACL user without keys or INFO, and needs no channels', async (t) => {
    const probe = { ...env, REDIS_URL: env.REDIS_URL.replace('redis://', 'redis://probe:pa55word@') }
    const permit = (...rules: string[]) =>
      redis.cli('ACL', 'SETUSER', 'probe', 'reset', 'on', '>pa55word', ...rules)
    const as = async (...rules: string[]) => {
      await permit(...rules)
      return await doctor(probe)
    }
    finds(t, await as('~other:*', '+@all'), {
      rights: /the user of REDIS_URL may not use keys below bff:: add ~bff:\* to its ACL$/,
    })
    await permit('~bff:*', '+@all', '-info')
    const blind = await doctorProcess(t, probe)
    finds(t, blind, { rights: /may not run INFO: add \+info to its ACL$/ })
    t.match(blind.lines[2], /^warn {2}eviction .*unknown/)
    const documented = await as('~bff:*', 'resetchannels', '+@all', '-@dangerous', '+info')
    t.match(documented, { code: 0 }, 'the documented rights')
    // The nonce of the probe lives one millisecond, every other key five seconds.
    await until('nothing is left', async () => (await redis.cli('KEYS', 'bff:doctor:*')) === '')
  })

  await t.test('finds a clock that is off', async (t) => {
    const shift = 'data:text/javascript,const{now}=Date;Date.now=()=>now()+60000'
    const startedAt = performance.now()
    const ahead = await doctorProcess(t, { ...env, NODE_OPTIONS: `--import=${shift}` })
    // The middle of a request is compared, so that it is off by half of the request at most. One decimal place is shown.
    const mostOff = (performance.now() - startedAt) / 2_000 + 0.05
    const words = /([\d.]+) s ahead of Redis, .*ahead of the authorization server, .*NTP/
    finds(t, ahead, { clocks: words })
    const seconds = secondsIn(ahead, words)
    t.ok(Math.abs(seconds - 60) <= mostOff, `${seconds} s, off by ${mostOff} s at most`)
    const date = new Date(Date.now() + 60_000).toUTCString()
    sandbox.faults.set({ resourceHeaders: { date } })
    // A header means the middle of its second.
    const secondsUntil = () => (Date.parse(date) + 500 - Date.now()) / 1_000
    const most = secondsUntil() + 0.05
    const behind = await doctor(env)
    const least = secondsUntil() - 0.05
    finds(t, behind, { clocks: /\d s behind the resource server/ })
    const secondsBehind = secondsIn(behind, /([\d.]+) s behind the resource server/)
    t.ok(secondsBehind >= least && secondsBehind <= most, `${secondsBehind} s, from ${least} to ${most} s`)
    sandbox.faults.reset()
  })

  await t.test('finds a reverse proxy that does not pass a prefix on', async (t) => {
    const front = async (isPassed: (path: string) => boolean) => {
      const server = createServer((request, response) => {
        const path = request.url ?? ''
        if (!isPassed(path)) {
          response.writeHead(200, { 'content-type': 'text/html', server: 'nginx' }).end('<p>the page</p>')
          return
        }
        void fetch(env.PUBLIC_URL + path).then(async (answer) => {
          const type = answer.headers.get('content-type') ?? ''
          response.writeHead(answer.status, { 'content-type': type }).end(await answer.text())
        })
      })
      return { ...env, PUBLIC_URL: `http://localhost:${await listenOnLoopback(t, server)}` }
    }
    finds(t, await doctor(await front((path) => !path.startsWith('/auth'))), {
      'public origin':
        /^FAULT public origin +nginx responds with 200 below \/auth instead.*PUBLIC_URL must pass \/auth on$/,
    })
    finds(t, await doctor(await front(() => false)), {
      'public origin': /must pass \/auth, \/flux, \/site on$/,
    })
    t.match(await doctor(await front(() => true)), { code: 0 })
  })

  await t.test('is reached through an egress proxy, and a proxy that fails is found', async (t) => {
    const proxy = await startConnectProxy(t, { credentials: 'egress:pr0xy-word' })
    const url = (password: string) => proxy.url.replace('://', `://egress:${password}@`)
    const good = await doctor({ ...env, HTTP_PROXY: url('pr0xy-word') })
    t.match(good, { code: 0 }, good.lines.join('\n'))
    const through = `through 127.0.0.1:${proxy.port}`
    t.equal(
      good.lines[4],
      `ok    egress proxy        the authorization server ${through}, the resource server ${through}`,
    )
    const { host } = new URL(env.AUTH_URL)
    t.strictSame([...new Set(proxy.targets)], [host], 'PUBLIC_URL is asked directly')
    const once = (fault: RegExp) => ({ 'egress proxy': fault })
    const refused = new RegExp(
      `127.0.0.1:${proxy.port} refused .* ${host} with status 407: check .* HTTP_PROXY`,
    )
    finds(t, await doctor({ ...env, HTTP_PROXY: url('an0ther-word') }), once(refused))
    for (const status of [403, 502]) {
      proxy.respondWith(status)
      const words = new RegExp(`refused CONNECT ${host} with status ${status}: check that it`)
      finds(t, await doctor({ ...env, HTTP_PROXY: url('pr0xy-word') }), once(words))
    }
    const down = /the egress proxy 127\.0\.0\.1:\d+ cannot be reached, ECONNREFUSED: check HTTP_PROXY/
    finds(t, await doctor({ ...env, HTTP_PROXY: nobody }), once(down))
  })

  await t.test('warns where nothing serves PUBLIC_URL yet', async (t) => {
    const { code, lines } = await doctor({ ...env, PUBLIC_URL: `http://localhost:${await freePort()}` })
    t.equal(code, 0)
    t.match(lines.at(-2), /^warn {2}public origin .*ECONNREFUSED.*PUBLIC_URL/)
  })
})

t.test('every form of Redis is checked, over all masters of a Cluster', async (t) => {
  const sandbox = await startSandbox(t)
  const env = {
    PUBLIC_URL: `http://localhost:${await freePort()}`,
    ...platformEnv(sandbox),
    SESSION_SECRET,
  }
  const [cluster, group] = await Promise.all([startCluster(t), startSentinelGroup(t)])
  const ofCluster = await doctor({ ...env, REDIS_URL: cluster.url })
  t.match(ofCluster, { code: 0 }, ofCluster.lines.join('\n'))
  t.match(ofCluster.lines[1], /Cluster of 3 masters, (Redis|Valkey) \d/)
  const ofGroup = await doctor({ ...env, REDIS_URL: group.url })
  t.match(ofGroup, { code: 0 }, ofGroup.lines.join('\n'))
  t.match(ofGroup.lines[1], /Sentinel, (Redis|Valkey) \d/)

  await t.test('finds an eviction policy of one master alone', async (t) => {
    await cluster.nodes[2]!.cli('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
    finds(t, await doctor({ ...env, REDIS_URL: cluster.url }), {
      eviction: /maxmemory-policy allkeys-lru.*set noeviction/,
    })
  })

  await t.test('finds a Cluster and a Sentinel group that are down', async (t) => {
    const nodes = [...cluster.nodes, group.master, group.replica]
    await Promise.all(nodes.map(async (node) => await node.stop()))
    const [noCluster, noMaster] = await Promise.all(
      [cluster.url, group.url].map(async (REDIS_URL) => await doctor({ ...env, REDIS_URL })),
    )
    const unreached = { Redis: /cannot be reached \(.*ECONNREFUSED.*\): check REDIS_URL and that Redis runs/ }
    finds(t, noCluster!, unreached)
    finds(t, noMaster!, unreached)
  })
})

t.test('a faulty environment ends with code 2, and each fault names its variable', async (t) => {
  const parameters = { a: { enum: [''] } }
  const operations = {
    Read: { method: 'GET', path: '/x/{a}', account: 'none', parameters },
    Write: { method: 'TRACE', path: '/ü' },
  }
  const folder = t.testdir({ 'operations.json': JSON.stringify({ operations }) })
  const report = await doctorProcess(t, {
    ...{ SESSION_SECRET: 'too-short-a-secret', PORT: 'many', WAC_ALLOWED: 'DEMO' },
    OPERATIONS_FILE: `${folder}/operations.json`,
  })
  t.match(report, { code: 2, stderr: '' })
  for (const fault of [
    '/operations/Read/parameters/a must be "integer", "id" or {"enum": […]} of ids',
    '/operations/Read/account must not be "none" while WAC_ALLOWED is set',
    '/operations/Write/method must be one of GET, POST, PUT, PATCH, DELETE',
    '/operations/Write/path has a segment "ü" that',
  ])
    t.ok(
      report.lines.some((line) => line.startsWith(`FAULT configuration       OPERATIONS_FILE ${fault}`)),
      `${fault}, beside all others and as it is`,
    )
  for (const name of 'SESSION_SECRET PORT AUTH_URL BASE_URL CLIENT_ID CLIENT_SECRET REDIS_URL'.split(' '))
    t.equal(
      report.lines.filter((line) => line.startsWith(`FAULT configuration       ${name} `)).length,
      1,
      name,
    )
})

t.test('the doctor explains itself', async (t) => {
  t.strictSame(parseDoctorArguments(['-h']), { kind: 'help' })
  t.match(DOCTOR_HELP, /Exit code 0.*1: something.*2: called/s)
  t.match(parseDoctorArguments(['--colour']), { kind: 'wrong', message: /--colour/ })
  t.match(parseDoctorArguments(['now']), { kind: 'wrong', message: /now/ })
  const noDraft = { draft: [], out: null }
  const nothing = { kind: 'live', json: false, flux: null, site: null, restore: null, ...noDraft }
  t.strictSame(parseDoctorArguments(['--live']), nothing)
  t.strictSame(parseDoctorArguments('--live --flux A/b --site A/1 --write --restore f --json'.split(' ')), {
    ...{ kind: 'live', json: true, flux: 'A/b', site: 'A/1', restore: 'f', ...noDraft },
  })
  for (const [args, names] of [
    ['--flux A/b', '--live'],
    ['--live --flux b', '--flux'],
    ['--live --flux A/b/c', '--flux'],
    ['--live --site A/x --write', '--site'],
    ['--live --site A/9007199254740993 --write', '--site'],
    ['--live --site A/1', '--write'],
    ['--live --write', '--site'],
    ['--live --restore f', '--site'],
  ])
    t.match(
      parseDoctorArguments(args!.split(' ')),
      { kind: 'wrong', message: new RegExp(names!) },
      String(args),
    )
})
