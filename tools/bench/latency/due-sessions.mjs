// Stores sessions through the server's own code, all of which come due `leadMs` after the first was stored, and
// reports completion with that time.
import { forEach, openSessions } from '../refresh/sessions.mjs'

const { count, leadMs, aheadSeconds, ...settings } = JSON.parse(process.argv[2])
const { signedIn } = openSessions(settings, () => {})
let dueAt = 0
const store = () => signedIn((dueAt - Date.now()) / 1_000 + aheadSeconds)

// The first calls fail until the connection is open.
do {
  dueAt = Date.now() + leadMs
} while (!(await store().catch(() => new Promise((resolve) => setTimeout(resolve, 50)))))
await forEach(count - 1, 200, store)
console.log(`filled, due at ${dueAt}`)
