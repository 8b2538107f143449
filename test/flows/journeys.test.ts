import { readFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { presentations } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { read } from '../repository/files.ts'

// docs/architecture.md names the files of each journey: those in which functions run on the way, as the engine counts them.

const ROUNDS = 3

/** Where each module of a compiled file begins: the compiler writes its path in a comment. */
const modules = new Map<string, { at: number; file: string }[]>()

function fileAt(url: string, offset: number): string | undefined {
  const text = modules.get(url) ?? []
  if (!modules.has(url)) {
    modules.set(url, text)
    for (const match of readFileSync(fileURLToPath(url), 'utf8').matchAll(/^\/\/ ([\w./-]+\.ts)$/gm))
      text.push({ at: match.index, file: match[1]! })
  }
  return text.findLast(({ at }) => at <= offset)?.file
}

/** The files of the server in which `work` runs a function: in each round, and in any. */
async function filesOf(work: () => Promise<unknown>) {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  const rounds: Set<string>[] = []
  for (let round = 0; round < ROUNDS; round += 1) {
    await session.post('Profiler.takePreciseCoverage')
    await work()
    const { result } = await session.post('Profiler.takePreciseCoverage')
    const files = new Set<string>()
    for (const { url, functions } of result) {
      if (!url.startsWith('file:') || url.includes('/node_modules/')) continue
      for (const { ranges } of functions) {
        const [whole] = ranges
        const file = whole === undefined || whole.count === 0 ? undefined : fileAt(url, whole.startOffset)
        if (file?.startsWith('src/')) files.add(file.slice('src/'.length))
      }
    }
    rounds.push(files)
  }
  await session.post('Profiler.stopPreciseCoverage')
  session.disconnect()
  const [first, ...others] = rounds
  const always = [...first!].filter((file) => others.every((files) => files.has(file)))
  return { always: always.sort(), ever: new Set(rounds.flatMap((files) => [...files])) }
}

/** The files that these sections of the page name. */
function namedIn(...headings: string[]): string[] {
  return headings.flatMap(namedInOne)
}

function namedInOne(heading: string): string[] {
  const [section = ''] = read('docs/architecture.md').split(`### ${heading}\n`).slice(1)
  return [...section.split(/\n##/)[0]!.matchAll(/`([\w/-]+\.ts)`/g)].map(([, file]) => file!)
}

/** Every request passes `http/`, and every file uses those beside the folders: a journey names what is its own. */
const OWN = /^(?:login|oauth|proxy|vault)\//

async function areNamed(t: Test, headings: string[], work: () => Promise<unknown>): Promise<void> {
  const { always, ever } = await filesOf(work)
  t.comment(`${headings[0]}: ${always.length} files: ${always.join(' ')}`)
  const named = namedIn(...headings)
  const known = new Set(named.concat(namedIn(STEP)))
  const lacks = always.filter((file) => OWN.test(file) && !known.has(file))
  t.strictSame(lacks, [], 'each file of the journey is named')
  t.strictSame(
    named.filter((file) => !ever.has(file)),
    [],
    'each file that is named is on the way',
  )
}

const STEP = 'A step on a record'

async function start(t: Test, tokenLifeSeconds: number) {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t, { tokenLifeSeconds })
  const bff = await startBff(t, sandbox, {
    REDIS_URL: redis.url,
    SESSION_CACHE_MS: '10000',
    LOG_LEVEL: 'info',
    ACCESS_LOG: 'errors',
  })
  await untilReady(bff)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  return { redis, sandbox, bff, browser }
}

t.test('the page on architecture names the files of a cached call and of a sign-in', async (t) => {
  const { sandbox, bff, browser } = await start(t, 3_600)
  const call = async () => t.equal((await browser.fetch('/flux/Weather')).status, 200)
  await call()
  await areNamed(t, ['A cached `GET /flux/x`'], call)
  const beginsSession = async () => void (await signIn(bff.browser(), sandbox))
  await areNamed(t, ['The start of a sign-in', 'A sign-in callback'], beginsSession)
})

t.test('the page on architecture names the files of a background refresh', async (t) => {
  const LIFE_MS = 3_000
  const { redis, sandbox } = await start(t, LIFE_MS / 1_000)
  const dueInMs = async () =>
    Number((await redis.cli('zrange', 'bff:due', '-1', '-1', 'withscores')).split('\n')[1]) - Date.now()
  await areNamed(t, ['A background refresh'], async () => {
    const before = presentations(sandbox).length
    await until('a refresh', async () => presentations(sandbox).length > before)
    // Its tokens are stored by then. While it is claimed its entry is due later.
    await until('the queue has the next one', async () => (await dueInMs()) < LIFE_MS)
  })
})
