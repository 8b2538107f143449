// A headless Firefox, driven by WebDriver BiDi. playwright-core only drives a Firefox of its own.

import { join } from 'node:path'
import { WebSocket } from 'undici'
import { findTool } from '../setup/tools.mjs'
import { startChild, type Teardown, toolPath, waitForOutput } from './child.ts'
import { until } from './wait.ts'
import { makeFolder } from './watchdog.ts'

/** Why tests of Firefox are skipped on this machine; false: they run. */
export const LACKS_FIREFOX =
  findTool('firefox') === null && 'Firefox is not installed (Debian: the package firefox-esr)'

type Send = (method: string, params: object) => Promise<Record<string, unknown>>

export type FirefoxTab = ReturnType<typeof openTab>

interface FirefoxCookie {
  readonly name: string
  readonly httpOnly: boolean
  readonly sameSite: string
}

/** Starts it with an empty profile. It ends with the test. */
export async function launchFirefox(t: Teardown) {
  const folder = makeFolder('firefox')
  const args = ['--headless', '--no-remote', '--remote-debugging-port=0', '--profile', folder]
  const env = { PATH: process.env.PATH ?? '', HOME: folder, TMPDIR: folder, MOZ_CRASHREPORTER_DISABLE: '1' }
  const child = startChild(t, toolPath('firefox'), args, { env, cwd: join(folder, '..') })
  const address = await waitForOutput(child, (output) => /ws:\/\/127\.0\.0\.1:\d+/.exec(output))
  if (address === null) throw new Error(`Firefox did not start:\n${child.output()}`)
  const send = await connect(`${address[0]}/session`)
  await send('session.new', { capabilities: { alwaysMatch: { acceptInsecureCerts: true } } })
  // It ends its own processes. After a kill they would live on.
  t.teardown(async () => {
    await Promise.race([send('browser.close', {}), child.ended])
    await child.ended
  })
  return {
    async newTab() {
      const { context } = await send('browsingContext.create', { type: 'window' })
      return openTab(send, String(context))
    },
    async cookies(): Promise<FirefoxCookie[]> {
      const { cookies } = await send('storage.getCookies', {})
      return cookies as FirefoxCookie[]
    },
  }
}

async function connect(address: string): Promise<Send> {
  const socket = new WebSocket(address)
  const waiting = new Map<number, (message: Record<string, unknown>) => void>()
  await new Promise((resolve, reject) => {
    socket.addEventListener('open', resolve)
    socket.addEventListener('error', () => reject(new Error(`no connection to ${address}`)))
  })
  socket.addEventListener('message', ({ data }) => {
    const message = JSON.parse(String(data)) as { id?: number }
    waiting.get(message.id ?? -1)?.(message as Record<string, unknown>)
    waiting.delete(message.id ?? -1)
  })
  socket.addEventListener('close', () => {
    for (const answer of waiting.values()) answer({ error: 'closed', message: 'Firefox has ended' })
  })
  let last = 0
  return async (method, params) => {
    const id = ++last
    const answered = new Promise<Record<string, unknown>>((resolve) => waiting.set(id, resolve))
    socket.send(JSON.stringify({ id, method, params }))
    const { type, result, error, message } = await answered
    if (type !== 'success') throw new Error(`${method}: ${error}: ${message}`)
    return result as Record<string, unknown>
  }
}

/** One tab. Selectors are CSS. */
function openTab(send: Send, context: string) {
  /** The value of an expression, awaited; it must survive JSON. */
  const evaluate = async <T = unknown>(expression: string): Promise<T> => {
    const { type, result, exceptionDetails } = await send('script.evaluate', {
      expression: `(async () => JSON.stringify([await (${expression})]))()`,
      target: { context },
      awaitPromise: true,
    })
    if (type !== 'success') throw new Error(`${expression}: ${JSON.stringify(exceptionDetails)}`)
    return JSON.parse((result as { value: string }).value)[0] as T
  }
  /** Waits until the expression is true. Between two pages there may be none that could say anything. */
  const sees = async (expression: string): Promise<void> =>
    void (await until(expression, () => evaluate<boolean>(`!!(${expression})`).catch(() => false)))
  /** Waits until the element is there. */
  const has = (selector: string) => sees(`document.querySelector(${JSON.stringify(selector)})`)
  return {
    evaluate,
    sees,
    has,
    async goto(url: string): Promise<void> {
      await send('browsingContext.navigate', { context, url, wait: 'complete' })
    },
    async close(): Promise<void> {
      await send('browsingContext.close', { context })
    },
    async reload(): Promise<void> {
      await send('browsingContext.reload', { context, wait: 'complete' })
    },
    /** Clicks as a person does: the page gets user activation. */
    async click(selector: string): Promise<void> {
      await has(selector)
      await evaluate(
        `document.querySelector(${JSON.stringify(selector)}).scrollIntoView({ block: 'center' })`,
      )
      const { nodes } = await send('browsingContext.locateNodes', {
        context,
        locator: { type: 'css', value: selector },
        maxNodeCount: 1,
      })
      const origin = { type: 'element', element: (nodes as { sharedId: string }[])[0] }
      const steps = [
        { type: 'pointerMove', x: 0, y: 0, origin },
        { type: 'pointerDown', button: 0 },
        { type: 'pointerUp', button: 0 },
      ]
      await send('input.performActions', {
        context,
        actions: [{ type: 'pointer', id: 'mouse', actions: steps }],
      })
    },
    async fill(selector: string, text: string): Promise<void> {
      await has(selector)
      await evaluate(`Object.assign(document.querySelector(${JSON.stringify(selector)}), { value: ${JSON.stringify(text)} })
        .dispatchEvent(new Event('input', { bubbles: true }))`)
    },
  }
}
