import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'
import t, { type Test } from 'tap'
import { type ChildOptions, startChild, type Teardown } from '../helpers/child.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { makeFolder } from '../helpers/watchdog.ts'

// Nothing here is about speed.
t.jobs = 3

const BENCH = fileURLToPath(new URL('../../tools/bench', import.meta.url))
const PAGE = readFileSync(fileURLToPath(new URL('../../docs/benchmarks.md', import.meta.url)), 'utf8')

async function run(t: Teardown, options: ChildOptions, file: string, ...args: string[]) {
  const child = startChild(t, process.execPath, [join(BENCH, file), ...args], options)
  const { code } = await child.ended
  return { code, stdout: child.stdout(), stderr: child.stderr() }
}

const importBench = async (file: string) => await import(pathToFileURL(join(BENCH, file)).href)

/** The cells of the table between the marks of a question on a page. */
function tableOf(page: string, question: string): string[][] {
  const [, section = ''] = page.split(`<!-- ${question}: written by the benchmark -->\n`)
  const lines = section.split(`<!-- /${question} -->`)[0]!.split('\n')
  const rows = lines.filter((line) => line.startsWith('|')).map((line) => line.slice(2, -2).split(' | '))
  return rows.filter(([first = '']) => !first.startsWith(':-'))
}

/** Each title of some rows once, whatever its numbers. */
function titlesOf(rows: string[][]): string[] {
  return [...new Set(rows.map(([title = '']) => title.replaceAll(/[\d,]+/g, 'N')))]
}

/** The rows that a short run writes. They must be printed, and be those of docs/benchmarks.md in their order. */
async function answer(t: Test, question: string, flags: string): Promise<string[][]> {
  const page = join(makeFolder('bench'), 'page.md')
  writeFileSync(page, `# Kept\n\n<!-- ${question}: written by the benchmark -->\n<!-- /${question} -->\n`)
  const args = [question, '--quick', '--page', page, ...flags.split(' ')]
  const { code, stdout, stderr } = await run(t, {}, 'bench.mjs', ...args)
  t.equal(code, 0, stderr)
  const written = readFileSync(page, 'utf8')
  t.match(written, /^# Kept\n/)
  const [columns, ...rows] = tableOf(written, question)
  const printed = stdout.split('\n').filter((line) => line.startsWith('|')).length
  t.equal(printed, rows.length + 2, 'what is written is printed')
  const [columnsOfPage, ...rowsOfPage] = tableOf(PAGE, question)
  t.strictSame(columns, columnsOfPage)
  const titles = titlesOf(rows)
  const those = titlesOf(rowsOfPage).filter((title) => titles.includes(title))
  t.strictSame(titles, those)
  return rows
}

const number = (cell = ''): number => Number(/[\d,.]+/.exec(cell)?.[0].replaceAll(',', ''))

// The longest first: it runs while the others take turns.
t.test('growth: refreshes, calls and sign-outs on one master and on three', async (t) => {
  const only = '--only small-1,large-3 --sessions 2000 --count 20 --seconds 0.3'
  const rows = await answer(t, 'growth', only)
  t.equal(rows.length, 2)
  for (const cells of rows)
    for (const cell of [...cells.slice(1, 4), cells[5]]) t.ok(number(cell) > 0, `${cells[0]}: ${cell}`)
  const bytes = (number(rows[1]![4]) * 1e6) / 2_000
  t.ok(bytes > 1_000 && bytes < 10_000, `a session takes ${bytes} bytes, its tokens alone more than 1,000`)
})

t.test('calls: configurations of this server beside bare Node', async (t) => {
  const only = '--only ours,ours-uncached,ours-logged,bare --rounds 1'
  // Few sessions: each asks Redis again every second, and a slow machine has few calls in this time.
  const short = '--seconds 0.4 --warmup 0.1 --browsers 2 --connections 8'
  const rows = await answer(t, 'calls', `${only} ${short}`)
  t.equal(rows.length, 4)
  for (const [title, perSecond, cpu, ratio] of rows)
    for (const cell of [perSecond, cpu, ratio]) t.ok(number(cell) > 0, `${title}: ${cell}`)
})

t.test('users: pages that ask from time to time', async (t) => {
  const rows = await answer(t, 'users', '--only ours --seconds 2 --warmup 0.1 --browsers 10 --every 1')
  const [ours, bare] = rows
  t.ok(number(ours![3]) > 0 && number(ours![3]) < 3, `${ours![3]} Redis commands a call`)
  t.ok(number(bare![4]) <= number(bare![5]), 'p50, p99')
})

t.test('refresh: the background beside the libraries alone', async (t) => {
  const rows = await answer(t, 'refresh', '--count 100 --seconds 0.5 --warmup 0.5')
  for (const [title, cpu, ratio] of rows) t.ok(number(cpu) > 0 && number(ratio) > 0, `${title}: ${cpu}`)
})

t.test('rest: the memory of sessions, and an idle process', async (t) => {
  const rows = await answer(t, 'rest', '--sessions 2000 --seconds 1')
  const [[, bytes], , [, start], [, memory]] = rows as [string[], string[], string[], string[]]
  t.ok(number(bytes) > 1_000 && number(bytes) < 10_000, `a session takes ${bytes}`)
  t.ok(number(start) > 0 && number(memory) > 20, `${start}, ${memory}`)
})

t.test('the profile names the folders of src and the packages of the bundle', async (t) => {
  const { code, stdout, stderr } = await run(t, {}, 'profile.mjs', 'call', '1')
  t.equal(code, 0, stderr)
  for (const place of ['src/proxy/', 'undici', 'fastify', 'node:_http_server'])
    t.match(stdout, `| ${place} |`)
})

t.test('a benchmark whose Redis does not start ends, and says why', async (t) => {
  const folder = makeFolder('bench')
  const script = '#!/bin/sh\necho no memory left\nexit 1\n'
  writeFileSync(join(folder, 'redis-server'), script, { mode: 0o755 })
  const env = { PATH: `${folder}:${process.env.PATH ?? ''}` }
  const { code, stderr } = await run(t, { env }, 'bench.mjs', 'rest', '--quick')
  t.equal(code, 1)
  t.match(stderr, /redis-server ended at its start:\nno memory left/)
})

t.test('the load counts failed responses, and waits of calls for a connection', async (t) => {
  let responses = 0
  let held: Promise<void> | null = null
  const server = createServer((request, response) => {
    responses += 1
    // A connection ends after every tenth response.
    if (responses % 10 === 0) response.setHeader('connection', 'close')
    if (request.url === '/moved') response.writeHead(302, { location: '/' })
    if (request.url === '/held') held ??= pause(500)
    void (held ?? pause(0)).then(() => response.end('rest'))
  })
  const port = await listenOnLoopback(t, server)
  const file = join(makeFolder('load'), 'requests.tsv')
  const load = async (paths: string[], job: object) => {
    writeFileSync(file, paths.map((path) => `GET\t${path}\tsession=none\n`).join(''))
    responses = 0
    const order = JSON.stringify({ port, file, headers: {}, connections: 2, ...job })
    const { stdout } = await run(t, {}, 'load/generator.mjs', order)
    return JSON.parse(stdout) as { requests: number; failed: number; p50: number; p99: number }
  }

  const closed = await load(['/', '/moved'], { seconds: 0.5 })
  t.equal(closed.requests, responses, 'all responses count')
  t.ok(Math.abs(closed.failed - responses / 2) <= 1, `${closed.failed} bad ones of ${responses}`)
  t.match(await load(['/', '/', '/moved'], { once: true }), { requests: 3, failed: 1 })
  const pages = { everySeconds: 0.1, calls: 1 }
  const open = await load(['/held', '/held', ...Array(10).fill('/')], { seconds: 1, pages })
  t.equal(open.failed, 0)
  t.ok(open.p99 > 400, `two connections were held for half a second; p99 ${open.p99} ms`)
})

t.test('a load with an error, or with responses that the upstream never sent, is rejected', async (t) => {
  const { faultOf } = await importBench('under-load.mjs')
  t.equal(faultOf({ requests: 10, failed: 0 }, 12), null)
  t.match(faultOf({ requests: 10, failed: 1 }, 12), '1 of 10')
  t.match(faultOf({ requests: 10, failed: 0 }, 7), '3 of 10')
  t.match(faultOf({ requests: 0, failed: 0 }, 0), 'no responses')
})

t.test('rounds start new processes, and groups take turns with the reference', async (t) => {
  const { compare, mediansOf } = await importBench('compare.mjs')
  const candidates = ['a', 'b', 'bare', 'c', 'd'].map((name) => ({ name }))
  const did: string[] = []
  const results = await compare({
    candidates,
    reference: candidates[2],
    options: { rounds: 2, seconds: 2, warmup: 1 },
    start: async ({ name }: { name: string }) => ({
      warmUp: async () => void did.push(`warm ${name}`),
      load: async () => did.push(name),
      stop: async () => void did.push(`stop ${name}`),
    }),
    figuresOf: (loads: number[]) => ({ at: loads[0] }),
  })
  const first = ['a', 'b', 'bare']
  const [warm, stop] = ['warm', 'stop'].map((what) => first.map((name) => `${what} ${name}`))
  t.strictSame(did.slice(0, 12), [...warm!, ...first, ...first, ...stop!])
  const stopped = did.filter((line) => line.startsWith('stop ')).map((line) => line.slice(5))
  t.strictSame(stopped.slice(6), ['d', 'c', 'bare', 'b', 'a', 'bare'], 'the second round is in reverse')
  const [a] = mediansOf(candidates, results)
  t.match(a, { figures: { at: { least: 4 } }, times: { at: { least: 4 / 6 } } }, 'beside its reference')
})

t.test('two equal candidates show which difference a run resolves', async (t) => {
  const { noiseOf } = await importBench('compare.mjs')
  const times = (...ratios: number[]) => ratios.map((cpu) => ({ times: { cpu } }))
  const noise = (...ratios: number[]) =>
    noiseOf(new Map(Object.entries({ a: times(1, 2, 4), 'a-again': times(...ratios) })), 'a', 'cpu')
  t.equal(noise(1.3, 2.6, 5.2).toFixed(), '30', 'as far as the medians are apart')
  t.equal(noise(0.5, 2, 6).toFixed(), '72', 'or twice the standard error of the median')
  t.equal(noise(1), null)
})
