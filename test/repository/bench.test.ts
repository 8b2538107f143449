import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import t from 'tap'
import { startChild, type Teardown } from '../helpers/child.ts'
import { makeFolder } from '../helpers/watchdog.ts'

// Nothing here is about speed.
t.jobs = 3

const BENCH = fileURLToPath(new URL('../../bench', import.meta.url))

interface Run {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

async function bench(t: Teardown, file: string, ...args: string[]): Promise<Run> {
  const child = startChild(t, process.execPath, [join(BENCH, file), ...args])
  const { code } = await child.ended
  return { code, stdout: child.stdout(), stderr: child.stderr() }
}

/** A page with a place for each section. */
function emptyPage(names = ['proxy', 'workers', 'refresh', 'rest']): string {
  const page = join(makeFolder('bench'), 'page.md')
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

t.test(
  'the benchmark signs in, loads each server that needs no further package, and writes its page and chart',
  async (t) => {
    const page = emptyPage()
    const only = ['--only', 'ours,ours-uncached,ours-logged,bare,workers', '--load', 'sockets']
    const short = [
      '--rounds',
      '1',
      '--seconds',
      '0.3',
      '--warmup',
      '0.1',
      '--sessions',
      '8',
      '--connections',
      '8',
    ]
    const run = await bench(t, 'run.mjs', ...only, ...short, '--page', page)
    t.equal(run.code, 0, run.stderr)

    const written = readFileSync(page, 'utf8')
    t.match(written, /^# Kept\n/)
    const rows = rowsOf(written)
    t.equal(rows.length, 10, 'four candidates, two sizes; one worker and two')
    for (const [title, perSecond = ''] of rows) {
      t.ok(Number(perSecond.replaceAll(',', '')) > 0, `${title} answered: ${perSecond}`)
    }
    const [cached = 1, uncached = 0] = rows.map((cells) => Number(cells[6]))
    t.ok(cached < 0.2, `a session in the cache costs no Redis command: ${cached} a request`)
    t.ok(uncached > 0.9, `one that may not be cached costs one: ${uncached} a request`)
    t.strictSame(rowsOf(run.stdout), rows, 'what is printed is what is written')
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
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
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
  const page = emptyPage()
  const short = ['--rounds', '1', '--seconds', '0.3', '--count', '50', '--sessions', '200', '--idle', '1']
  const run = await bench(t, 'refresh.mjs', ...short, '--page', page)
  t.equal(run.code, 0, run.stderr)
  const rows = rowsOf(readFileSync(page, 'utf8'))
  t.ok(rows.length > 3, 'both tables are there')
  for (const [title, perSecond = ''] of rows.slice(0, 3)) {
    t.ok(Number(perSecond.replaceAll(',', '')) > 0, `${title}: ${perSecond}`)
  }
  const bytes = Number(/(\d+) bytes/.exec(rows.flat().join(' '))?.[1])
  t.ok(bytes > 800 && bytes < 10_000, `a session takes ${bytes} bytes, its tokens alone more than 800`)
})

t.test('the capacity benchmark measures a full store and extrapolates to larger ones', async (t) => {
  const page = emptyPage(['capacity', 'growth'])
  const short = ['--sessions', '1000', '--calls', '100', '--starts', '1', '--messages', '2000']
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
