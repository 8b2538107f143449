// Stores many sessions through the product's own code and says so.
import { forEach, openSessions } from './sessions.mjs'

const { sessions, ...settings } = JSON.parse(process.argv[2])
const { signedIn } = openSessions(settings, () => {})

// The first ones fail until the connection stands.
while (!(await signedIn(3_600).catch(() => null))) await new Promise((resolve) => setTimeout(resolve, 50))
await forEach(sessions - 1, 200, () => signedIn(3_600))
console.log('filled')
