import * as bff from '../../../client/bff-client.ts'
import './style.css'
import { describe, describeSignInError } from './words.ts'

interface Series {
  name: string
  unit: string
  values: { date: string; value: number }[]
}

const part = <E extends HTMLElement>(id: string) => document.getElementById(id) as E
const say = (text: string) => {
  part('status').textContent = text
}

function show(session: bff.Session): void {
  say(describe(session))
  part('app').hidden = !session.authenticated
  part('sign-out').hidden = !session.authenticated
  part('sign-in').hidden = session.authenticated
  if (session.authenticated) attempt(readTemperature)
}

async function readTemperature(): Promise<void> {
  const { name, unit, values } = await bff.flux<Series>('temperature', { query: { values: 1 } })
  part('temperature').textContent = `${name}: ${values.at(-1)?.value} ${unit}`
}

/** Runs `task`, and shows its failure to the user. */
function attempt(task: () => Promise<unknown>): void {
  task().catch((error: unknown) => {
    // The listener shows the end of a session.
    if (error instanceof bff.BffError && error.code === 'login_required') return
    say(error instanceof Error ? error.message : String(error))
    // Only offered: the session may recover.
    if (error instanceof bff.BffError && error.loginUrl !== null) part('sign-in').hidden = false
  })
}

part('sign-in').onclick = () => attempt(bff.signIn)
part('sign-out').onclick = () => attempt(bff.signOut)
part<HTMLFormElement>('site').onsubmit = (event) => {
  event.preventDefault()
  const name = String(new FormData(part<HTMLFormElement>('site')).get('name'))
  attempt(async () => {
    // What the platform does with an absent member is not documented, so all of them are sent.
    const others = { description: 'Laboratory', code: 'LAB-42', parentInfrastructureID: null }
    const site = await bff.updateSite(42, { name, ...others })
    say(`Saved as ${site.name}`)
  })
}

// Before anything reads the address: it removes what the sign-in added.
const signInError = bff.cameBack()
bff.onSessionChange(show)
attempt(async () => {
  const session = await bff.session()
  if (signInError) say(describeSignInError(signInError))
  else if (!session.authenticated && !session.ended) say('Sign in to read and change data.')
})
