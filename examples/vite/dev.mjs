// The sandbox platform, the server and Vite, until Ctrl-C.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { createServer } from 'vite'

const PUBLIC_URL = process.env.PUBLIC_URL ?? 'http://localhost:5173'
const root = fileURLToPath(new URL('.', import.meta.url))
const demo = fileURLToPath(new URL('../../dist/demo.js', import.meta.url))

const vite = await createServer({ root })
await vite.listen()
// It prints the address of the page when all three are ready.
const server = spawn(process.execPath, [demo], { stdio: 'inherit', env: { ...process.env, PUBLIC_URL } })
server.once('exit', async (code) => {
  await vite.close()
  process.exit(code ?? 1)
})
// The server ends first, so that no request of the page meets a closed port. Its exit ends this process.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => server.kill(signal))
