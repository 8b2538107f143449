import { changesOf, onSessionChange, request, session, signIn, signOut, updateSite } from '/auth/client.js'

const find = (selector) => document.querySelector(selector)
const fields = find('#save').elements
const sign = find('#sign')
let site = null

const say = (text) => {
  find('#status').textContent = text
}
const fail = (error) => {
  say(error.message)
  // A new sign-in may help, also where the session goes on.
  if (error.loginUrl) sign.textContent = 'Sign in'
}

/** A declared GET. Its path is that of the file, below /data. */
const read = async (path) => await (await request(`/data${path}`)).json()

async function show(current) {
  const { authenticated, user, wac } = current
  sign.textContent = authenticated ? 'Sign out' : 'Sign in'
  find('#signed-in').hidden = !authenticated
  if (!authenticated) return
  find('#greeting').textContent = `Hello ${user?.name ?? 'there'}`
  const fluxes = await read(`/${wac}/flux`)
  find('#fluxes').replaceChildren(
    ...fluxes.map(({ fluxID }) => {
      const link = document.createElement('a')
      link.href = `/flux/${fluxID}`
      link.textContent = fluxID
      const item = document.createElement('li')
      item.append(link)
      return item
    }),
  )
}

async function load(siteId) {
  const { wac } = await session()
  site = await read(`/${wac}/Infrastructure/Site/${siteId}`)
  fields.name.value = site.name
  fields.description.value = site.description
  find('#save').hidden = false
  say('')
}

/** All four members are sent: what the platform does with an absent one is not documented. */
async function save() {
  const changes = { ...changesOf(site), name: fields.name.value, description: fields.description.value }
  site = await updateSite(site.id, changes)
  say(`Saved: ${site.name}`)
}

sign.addEventListener('click', () => {
  const work = sign.textContent === 'Sign out' ? signOut() : signIn()
  work.catch(fail)
})
find('#load').addEventListener('submit', (event) => {
  event.preventDefault()
  load(event.target.elements.siteId.value).catch(fail)
})
find('#save').addEventListener('submit', (event) => {
  event.preventDefault()
  save().catch(fail)
})
onSessionChange((current) => void show(current).catch(fail))
session().then(show).catch(fail)
