import { dirname, join } from 'node:path'
import t from 'tap'
import { read } from './files.ts'

/** What readers ask, the page and the section that have the answer, and what the answer cannot do without. */
const QUESTIONS = String.raw`
  Which other programs do this? | docs/comparison.md | Features | oauth2-proxy
  What is in the browser, what is on the server? | README.md | How it works | session cookie \(HttpOnly
  How do I try it? | README.md | Quick start | npm run demo
  How do I make my first page? | docs/getting-started.md | 2. Make a page | <h1
  How does the page sign in? | docs/spa.md | Sign in | signIn\(
  What must the page do at a 503? | docs/spa.md | Errors | 503.*Retry-After
  Who has signed in? | docs/operations.md | Say who has signed in | "identity"
  How do I read a list from the platform? | docs/operations.md | List resources page by page | "skip"
  How do I send a user a file? | docs/spa.md | Offer a download | download
  How do I work with Vite? | docs/spa.md | Develop with Vite | changeOrigin: false
  What do I register at the platform? | docs/first-day.md | 1. Get a credential set | /auth/callback
  Does an update clear what I leave out? | docs/first-day.md | 5. Change a test site | --write
  How do I deploy it? | docs/deployment.md | From an empty Debian machine | systemctl enable --now
  What must the reverse proxy do? | docs/deployment.md | Reverse proxies | nginx
  How do I change SESSION_SECRET? | docs/deployment.md | Changing SESSION_SECRET | comma
  How do I end the sessions of a user? | docs/deployment.md | End sessions from the command line | --user
  How large must Redis be? | docs/benchmarks.md | A full store | A master of 16 GB
  What must my load balancer know of a stop? | docs/deployment.md | Stop and update | SHUTDOWN_DELAY_SECONDS
  Which failures lose a session? | docs/limits.md | Sessions that can still be lost | failover
  How do I report a weakness? | SECURITY.md | Reporting | private
`
  .trim()
  .split('\n')
  .map((line) => line.split(' | ').map((cell) => cell.trim()) as [string, string, string, string])

const linksOf = (page: string) =>
  [...read(page).matchAll(/\]\(([^)#\s]+\.md)(?:#[^)]*)?\)/g)].map(([, target]) =>
    join(dirname(page), target!),
  )

t.test('each of twenty questions is answered within two clicks of the README', async (t) => {
  t.equal(QUESTIONS.length, 20)
  const oneClick = linksOf('README.md')
  const reached = new Set(['README.md', ...oneClick, ...oneClick.flatMap(linksOf)])
  for (const [question, page, heading, answer] of QUESTIONS) {
    t.ok(reached.has(page), `${question} ${page} is within two clicks`)
    const section = read(page)
      .replaceAll('`', '')
      .split(/^#+ (?=[^\n]+$)/m)
      .find((text) => text.startsWith(`${heading}\n`))
    t.match(section, new RegExp(answer, 'i'), `${question} ${page} says it below "${heading}"`)
  }
})
