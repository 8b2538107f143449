import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import t from 'tap'
import { type ChildOptions, startChild, type Teardown } from '../helpers/child.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { toolPath } from '../helpers/redis.ts'
import { makeFolder } from '../helpers/watchdog.ts'

// Nothing here is about speed.
t.jobs = 3

const BENCH = fileURLToPath(new URL('../../tools/bench', import.meta.url))

interface Run {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

function bench(t: Teardown, file: string, ...args: string[]): Promise<Run> {
  return benchWith(t, {}, file, ...args)
}

async function benchWith(t: Teardown, options: ChildOptions, file: string, ...args: string[]): Promise<Run> {
  const child = startChild(t, process.execPath, [join(BENCH, file), ...args], options)
  const { code } = await child.ended
  return { code, stdout: child.stdout(), stderr: child.stderr() }
}

/** A page with a place for each section. */
function emptyPage(names = ['proxy', 'latency', 'refresh', 'rest'], name = 'page.md'): string {
  const page = join(makeFolder('bench'), name)
  const places = names.map((name) => `<!-- ${name}: written by the benchmark -->\n<!-- /${name} -->\n`)
  writeFileSync(page, `# Kept\n\n${places.join('\n')}`)
  return page
}

/** The cells of each row of the Markdown tables in a text, headings left out. */
function rowsOf(text: string): string[][] {
  const lines = text.split('\n').filter((line) => line.startsWith('| '))
  const cells = lines.map((line) => line.slice(2, -2).split(' | '))
  return cells.filter(([first = '']) => first.trim() !== '' && !first.startsWith(':-'))
}

interface Percentiles {
  readonly p50: number
  readonly p99: number
  readonly most: number
}

/** Why a load says nothing about a server, or null. */
interface Validity {
  readonly fault: string | null
}

interface OpenLoop {
  readonly requests: number
  readonly failed: number
  readonly statuses: Record<string, number>
  readonly latency: Percentiles
  readonly late: Percentiles
  readonly waited: number
}

// The longest first: it runs while the others take turns.
t.test('the latency benchmark compares with direct calls, and shows a refresh and a failover', async (t) => {
  const page = emptyPage()
  const names = 'ours,refresh,failover'
  const short = [
    '--quick',
    '--seconds',
    '0.3',
    '--calm',
    '0.5',
    '--count',
    '100',
    '--warmup',
    '0.2',
    '--sessions',
    '8',
  ]
  const which = ['--only', names, '--shares', '50', '--load', 'sockets', '--page', page]
  const run = await bench(t, 'latency.mjs', ...short, ...which)
  t.equal(run.code, 0, run.stderr)
  const rows = rowsOf(readFileSync(page, 'utf8'))
  t.strictSame(rowsOf(run.stdout), rows, 'what is printed is what is written')
  for (const [title, count = ''] of rows) t.ok(Number(count.replaceAll(',', '')) > 0, `${title}: ${count}`)

  const written = JSON.parse(readFileSync(page.replace(/\.md$/, '-latency.json'), 'utf8')) as {
    candidates: { through: OpenLoop & Validity; direct: OpenLoop & Validity }[]
    scenarios: { name: string; windows: Record<string, { requests: number; failed: object }> }[]
  }
  // A busy machine delays the generator, and an invalid round is not in the table.
  const valid = written.candidates.filter(
    ({ through, direct }) => through.fault === null && direct.fault === null,
  )
  t.equal(rows.length, valid.length + 2 * 3, 'a candidate; before, during and after the two disturbances')
  const [measured] = written.candidates
  for (const { requests, failed, latency } of [measured!.through, measured!.direct]) {
    t.ok(requests > 0 && failed === 0 && latency.p50 > 0, `${requests} requests, p50 ${latency.p50} ms`)
  }
  const [refresh, failover] = written.scenarios
  t.strictSame([refresh?.name, failover?.name], ['refresh', 'failover'])
  for (const window of [...Object.values(refresh!.windows), failover!.windows.before])
    t.strictSame(window?.failed, {})
  t.strictSame(Object.keys(failover?.windows.during?.failed ?? {}), ['503'], 'nothing but 503 meanwhile')
  t.strictSame(failover?.windows.after?.failed, {}, 'the server recovers')
})

t.test(
  'the benchmark signs in, loads each server that needs no further package, and writes its page and chart',
  async (t) => {
    const page = emptyPage()
    // The same server again, for the resolution of a run, has a test of its own.
    const only = ['--only', 'ours,ours-uncached,ours-logged,bare', '--load', 'sockets', '--sizes', '1,256']
    const times = ['--rounds', '1', '--seconds', '0.4', '--warmup', '0.05']
    // Few sessions: each asks Redis again every second, and a slow machine has few calls in this time.
    const short = [...times, '--sessions', '2', '--connections', '8']
    const run = await bench(t, 'run.mjs', ...only, ...short, '--page', page)
    t.equal(run.code, 0, run.stderr)

    const written = readFileSync(page, 'utf8')
    t.match(written, /^# Kept\n/)
    const rows = rowsOf(written)
    t.equal(rows.length, 8, 'four candidates, two sizes')
    for (const [title, perSecond = ''] of rows) {
      t.ok(Number(perSecond.replaceAll(',', '')) > 0, `${title} answered: ${perSecond}`)
    }
    const [cached = 1, uncached = 0] = rows.map((cells) => Number(cells[4]))
    // The slower the machine, the more of its calls ask Redis again after a second.
    t.ok(cached < uncached, `${cached} commands a request with the cache, ${uncached} without`)
    t.strictSame(rowsOf(run.stdout), rows, 'what is printed is what is written')
    const { sizes } = JSON.parse(readFileSync(page.replace(/md$/, 'json'), 'utf8')) as {
      sizes: { candidates: Record<string, { cpu: number }[]> }[]
    }
    t.strictSame(
      sizes.map(({ candidates }) => candidates.ours?.length),
      [1, 1],
      'a file next to the page has all rounds',
    )
    if (existsSync('/proc/self/stat'))
      t.match(readFileSync(page.replace(/md$/, 'svg'), 'utf8'), /^<svg .*<\/svg>\n$/s)
  },
)

t.test('the load counts every response, sized or chunked, and detects failed ones', async (t) => {
  let answered = 0
  const server = createServer((request, response) => {
    answered += 1
    if (request.url === '/moved') response.writeHead(302, { location: '/' })
    // More than one write, so that the answer is chunked.
    if (request.url === '/chunked') response.write('part, ')
    response.end('rest')
  })
  const port = await listenOnLoopback(t, server)
  const file = join(makeFolder('load'), 'requests.tsv')

  for (const { paths, bad } of [
    { paths: ['/sized', '/chunked'], bad: 0 },
    { paths: ['/sized', '/moved'], bad: 1 / 2 },
  ]) {
    writeFileSync(file, paths.map((path) => `${path}\tsession=none\n`).join(''))
    answered = 0
    const orders = { port, file, headers: {}, connections: 4, seconds: 1 }
    const run = await bench(t, 'load/sockets.mjs', JSON.stringify(orders))
    const { requests, failed } = JSON.parse(run.stdout) as { requests: number; failed: number }
    t.ok(requests > 0 && requests <= answered, `${requests} counted of ${answered}`)
    // The last answer of each connection comes after the time is over.
    t.ok(answered - requests <= 4)
    t.ok(Math.abs(failed - answered * bad) <= 1, `${failed} bad ones of ${answered}`)
  }
})

t.test('a run says which difference it can resolve, from the same server measured twice', async (t) => {
  const { errorLine, resolutionLine, rowsOf } = (await import(
    pathToFileURL(join(BENCH, 'report', 'table.mjs')).href
  )) as {
    errorLine: (title: string, ratios: number[]) => string
    resolutionLine: (results: Map<string, { cpu: number }[]>) => string
    rowsOf: (
      candidates: { name: string; title: string }[],
      results: Map<string, { cpu: number }[]>,
    ) => { ratio: { least: number; middle: number; most: number } }[]
  }
  const cpus = (...values: number[]) =>
    values.map((cpu) => ({ cpu, ratio: cpu / 100, perSecond: 1, redisCommands: 0, peak: 1 }))
  const alike = new Map([
    ['ours', cpus(100, 200, 400)],
    ['ours-again', cpus(101, 198, 400)],
  ])
  t.match(resolutionLine(alike), /^This run can resolve a difference of 1 %/)
  t.match(resolutionLine(new Map([...alike, ['ours-again', cpus(130, 260, 520)]])), /difference of 30 %/)
  t.match(resolutionLine(new Map([...alike, ['ours-again', cpus(50, 200, 600)]])), /difference of 7\d %/)
  t.match(resolutionLine(new Map([['ours', cpus(1)]])), /^Too few rounds/)
  t.match(
    errorLine('of a row', [9, 10, 11]),
    /^This run can resolve a difference of 14 %.* of a row, in 3 rounds/,
  )
  t.match(errorLine('of a row', [9, 10]), /^Too few rounds/)

  const [row] = rowsOf([{ name: 'ours', title: '' }], alike)
  t.strictSame(row?.ratio, { least: 1, middle: 2, most: 4 })
})

t.test(
  'each round starts new processes, and groups of candidates take turns with the reference',
  async (t) => {
    interface Summary {
      round: number
      kind: string
      candidate: string
      loads: string[]
      besideLoads: string[]
    }
    const { compareInTurns } = (await import(pathToFileURL(join(BENCH, 'turns.mjs')).href)) as {
      compareInTurns: (order: object) => Promise<void>
    }
    const did: string[] = []
    const added: Summary[] = []
    let started = 0
    await compareInTurns({
      candidates: ['a', 'b', 'bare', 'c', 'd'],
      reference: 'bare',
      kinds: ['small', 'big'],
      options: { rounds: 2, seconds: 2, warmupSeconds: 1 },
      async start(candidate: string) {
        const name = `${candidate}${++started}`
        did.push(`start ${name}`)
        return {
          warmUp: async (kind: string) => void did.push(`warm ${name} ${kind}`),
          async takeTurn(kind: string) {
            did.push(`${name} ${kind}`)
            return name
          },
          stop: async () => void did.push(`stop ${name}`),
        }
      },
      add: (summary: Summary) => added.push(summary),
    })
    const first = ['a1', 'b2', 'bare3']
    const each = (prefix: string, suffix = ''): string[] => first.map((name) => `${prefix}${name}${suffix}`)
    const load = (kind: string): string[] => [
      ...each('warm ', ` ${kind}`),
      ...each('', ` ${kind}`),
      ...each('', ` ${kind}`),
    ]
    const group = [...each('start '), ...load('small'), ...load('big'), ...each('stop ')]
    t.strictSame(did.slice(0, group.length), group)
    t.strictSame(
      did.filter((line) => line.startsWith('start ')).map((line) => line.replace(/start |\d+/g, '')),
      ['a', 'b', 'bare', 'c', 'd', 'bare', 'd', 'c', 'bare', 'b', 'a', 'bare'],
      'the same groups, of equal size, in each round',
    )
    const inRound = (wanted: number): string[] =>
      added
        .filter(({ round, kind }) => round === wanted && kind === 'small')
        .map(({ candidate }) => candidate)
    t.strictSame(inRound(1), ['a', 'b', 'c', 'd', 'bare'])
    t.strictSame(inRound(2), ['d', 'c', 'b', 'a', 'bare'])
    t.match(added[0], { candidate: 'a', loads: ['a1', 'a1'], besideLoads: ['bare3', 'bare3'] })
    const reference = added.find(({ candidate }) => candidate === 'bare')!
    t.strictSame(reference.loads, ['bare3', 'bare3', 'bare6', 'bare6'], 'the reference of every group')
    t.strictSame(reference.besideLoads, reference.loads)
  },
)

t.test('a round with an error, or with responses that the upstream never sent, is rejected', async (t) => {
  const { faultOf } = (await import(pathToFileURL(join(BENCH, 'rounds.mjs')).href)) as {
    faultOf: (load: { requests: number; failed: number }, served: number) => string | null
  }
  t.equal(faultOf({ requests: 10, failed: 0 }, 12), null)
  t.match(faultOf({ requests: 10, failed: 1 }, 12), '1 of 10')
  t.match(faultOf({ requests: 10, failed: 0 }, 7), '3 of 10')
  t.match(faultOf({ requests: 0, failed: 0 }, 0), 'no answers')
})

t.test('the refresh benchmark measures both kinds of refresh and the memory of idle sessions', async (t) => {
  const page = emptyPage(['refresh', 'rest'], 'page')
  const times = ['--rounds', '1', '--seconds', '0.3', '--warmup', '0.1', '--idle', '1']
  const short = [...times, '--count', '50', '--sessions', '200']
  const run = await bench(t, 'refresh.mjs', ...short, '--page', page)
  t.equal(run.code, 0, run.stderr)
  const rows = rowsOf(readFileSync(page, 'utf8'))
  t.ok(rows.length > 3, 'both tables are there')
  for (const [title, perSecond = ''] of rows.slice(0, 4)) {
    t.ok(Number(perSecond.replaceAll(',', '')) > 0, `${title}: ${perSecond}`)
  }
  const bytes = Number(/(\d+) bytes/.exec(rows.flat().join(' '))?.[1])
  t.ok(bytes > 800 && bytes < 10_000, `a session takes ${bytes} bytes, its tokens alone more than 800`)
  t.ok(existsSync(`${page}-refresh.json`), 'the rounds are apart from those of other benchmarks')
})

t.test('the capacity benchmark measures a full store and extrapolates to larger ones', async (t) => {
  const page = emptyPage(['capacity', 'growth'])
  const short = ['--sessions', '1000', '--calls', '100', '--starts', '1']
  const run = await bench(t, 'capacity.mjs', ...short, '--page', page)
  t.equal(run.code, 0, run.stderr)
  const rows = rowsOf(readFileSync(page, 'utf8'))
  t.strictSame(rowsOf(run.stdout), rows, 'what is printed is what is written')
  const of = (title: string): string => rows.find(([first]) => first === title)?.[1] ?? ''
  const bytes = Number(of('memory of one session, its queue entry included').replace(/\D/g, ''))
  t.ok(bytes > 1_300 && bytes < 10_000, `a session takes ${bytes} bytes, its tokens alone more than 1300`)
  t.match(of('`claimDue`, 10 due (1 %), up to 64 a call'), /^p50 [\d.]+ ms, p99 [\d.]+ ms$/)
  t.match(of('a new replica: start to its first call served'), /^[\d,]+ ms$/)
  t.equal(of('refreshes a second'), '3,003')
  t.equal(of('masters of 16 GB, filled to 70 %'), String(Math.ceil((10e6 * bytes) / 11.2e9)))
})

t.test('the profile names the folders of src and the packages that a bundle holds', async (t) => {
  const run = await bench(t, 'profile.mjs', '--seconds', '0.8', '--lines', '60')
  t.equal(run.code, 0, run.stderr)
  const recorded = run.stdout.split(/^### (?=.*: time by package)/m).slice(1)
  t.match(recorded, [/^call: /, /^bare: /, /^refresh: /])
  for (const place of ['src/proxy/', 'undici', 'fastify', 'node:_http_server'])
    t.ok(recorded[0]?.includes(`| ${place} |`), `a call: ${place}`)
  t.ok(recorded[1]?.includes('| undici |'), 'a call of bare Node: undici')
  for (const place of ['src/tokens/', 'openid-client', 'ioredis'])
    t.ok(recorded[2]?.includes(`| ${place} |`), `a refresh: ${place}`)
})

t.test('a benchmark whose Redis does not start ends, and says why', async (t) => {
  const folder = makeFolder('bench')
  // The first node of the Cluster starts, and the program is connected to it when the second does not.
  const lines = [
    '#!/bin/sh',
    `case "$*" in *cluster-enabled*) mkdir ${folder}/first 2>/dev/null || { echo no memory left; exit 1; } ;; esac`,
    `exec ${toolPath('redis-server')} "$@"`,
  ]
  writeFileSync(join(folder, 'redis-server'), `${lines.join('\n')}\n`, { mode: 0o755 })
  const env = { PATH: `${folder}:${process.env.PATH ?? ''}` }
  const run = await benchWith(t, { env }, 'capacity.mjs', '--sessions', '1000')
  t.equal(run.code, 1)
  t.match(run.stderr, /redis-server ended at its start:\nno memory left/)
})

t.test('the load at a fixed rate counts a latency from the time at which a request was due', async (t) => {
  let answered = 0
  const gate: { held: (() => void)[] | null } = { held: null }
  const server = createServer((request, response) => {
    answered += 1
    response.statusCode = request.url === '/moved' ? 302 : 200
    // The connection ends after every tenth response.
    if (answered % 10 === 0) response.setHeader('connection', 'close')
    if (answered === 50) {
      gate.held = []
      setTimeout(() => {
        for (const respond of gate.held ?? []) respond()
        gate.held = null
      }, 500)
    }
    const respond = () => void response.end('rest')
    if (gate.held === null) respond()
    else gate.held.push(respond)
  })
  const port = await listenOnLoopback(t, server)
  const file = join(makeFolder('load'), 'requests.tsv')
  writeFileSync(file, ['/', '/', '/', '/moved'].map((path) => `${path}\tsession=none\n`).join(''))

  const orders = { port, file, headers: {}, connections: 2, rate: 400, seconds: 1 }
  const run = await bench(t, 'load/open-loop.mjs', JSON.stringify(orders))
  const result = JSON.parse(run.stdout.trim().split('\n').at(-1) ?? '') as OpenLoop
  t.match(result, { requests: 400, failed: 100, statuses: { 200: 300, 302: 100 } }, run.stderr)
  t.equal(answered, 400, 'each was sent once')
  // Two connections were held for half a second. The requests that were due meanwhile waited for them unsent.
  t.ok(result.waited > 100, `${result.waited} had no free connection`)
  const { p99, most } = result.latency
  t.ok(most > 450 && p99 > 350, `their waiting counts: p99 ${p99} ms, longest ${most} ms`)
})

t.test('a load whose generator was late or overloaded is invalid, and left out of the table', async (t) => {
  const importFrom = async (file: string) => await import(pathToFileURL(join(BENCH, 'latency', file)).href)
  const { faultOf, overloadOf } = (await importFrom('candidates.mjs')) as Record<
    'faultOf' | 'overloadOf',
    (load: object) => string | null
  >
  const load = { requests: 1_000, failed: 0, late: { p99: 0.4 }, waited: 9 }
  t.equal(faultOf(load), null)
  t.match(faultOf({ ...load, failed: 1 }), '1 of 1000')
  t.match(faultOf({ ...load, late: { p99: 1.2 } }), '1.2 ms late')
  t.match(faultOf({ ...load, late: { p99: null } }), 'only 1000 requests')
  t.equal(overloadOf(load), null)
  t.match(overloadOf({ ...load, waited: 11 }), '11 of 1000')

  const { addedTables } = (await importFrom('tables.mjs')) as {
    addedTables: (candidates: object[], results: object[], shares: number[]) => string
  }
  const round = (through: number, direct: number, fault: string | null = null) => ({
    ...{ candidate: 'one', share: 50, rate: 1_000 },
    through: { latency: { p50: through, p99: 2 * through, p999: null }, fault },
    direct: { latency: { p50: direct, p99: 2 * direct, p999: 9 }, fault: null },
  })
  const rounds = [round(0.5, 0.1), round(0.7, 0.1), round(0.9, 0.1), round(50, 0.1, 'late')]
  const text = addedTables([{ name: 'one', title: 'first' }], rounds, [50])
  const direct = ['0.10 (0.10–0.10)', '0.20 (0.20–0.20)']
  const added = ['0.60 (0.40–0.80)', '1.20 (0.80–1.60)', '–']
  t.strictSame(rowsOf(text), [['first', '1,000', ...direct, ...added]])
  t.match(text, 'left out: first, 1 of 4 rounds (late).')
})
