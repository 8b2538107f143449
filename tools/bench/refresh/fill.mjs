// Stores many sessions through the server's own code and reports completion.
import { forEach, openSessions } from './sessions.mjs'

const { sessions, ...settings } = JSON.parse(process.argv[2])
const { signedIn } = openSessions(settings, () => {})

// The first calls fail until the connection is open.
while (!(await signedIn(3_600).catch(() => null))) await new Promise((resolve) => setTimeout(resolve, 50))
await forEach(sessions - 1, 200, () => signedIn(3_600))
console.log('filled')
