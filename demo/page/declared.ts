import { request, type SignedIn } from '../../client/bff-client.ts'
import { byId, element } from './dom.ts'
import { exchange } from './exchange.ts'
import type { Send } from './requests.ts'

/** A Site, as the sandbox invents it. */
interface Site {
  name: string
  description: string
  code: string
  parentInfrastructureID?: number | null
}

/** The operations of `operations.json`, beside this file: the demo starts the server with them. */
const PATHS = {
  fluxes: (wac: string) => `/data/${encodeURIComponent(wac)}/flux`,
  site: (wac: string, siteId: string) =>
    `/data/${encodeURIComponent(wac)}/Infrastructure/Site/${encodeURIComponent(siteId)}`,
}

/**
 * Offers what declared operations bring: the fluxes to choose from, and the Site to load before it is changed. A server
 * without these operations leaves the page as it is.
 *
 * @param onSend called with each request that the user asked for
 */
export function startDeclared(onSend: Send) {
  const load = byId('site-load', HTMLButtonElement)
  const note = byId('site-saved', HTMLElement)
  const form = byId('site-form', HTMLFormElement)
  const text = (id: string) => byId(id, HTMLInputElement).value.trim()
  let defaultWac = ''

  async function listFluxes(): Promise<void> {
    const response = await request(PATHS.fluxes(defaultWac)).catch(() => null)
    const fluxes = response === null ? null : ((await response.json()) as { fluxID: string }[])
    load.hidden = fluxes === null
    byId('declared', HTMLElement).hidden = fluxes === null
    if (fluxes === null) return
    // The last one is there to be missing.
    const options = [...fluxes.map(({ fluxID }) => fluxID), 'missing'].map((value) => {
      const option = element('option', '')
      option.value = value
      return option
    })
    byId('flux-ids', HTMLDataListElement).replaceChildren(...options)
  }

  async function loadSite(): Promise<void> {
    const path = PATHS.site(text('site-wac') || defaultWac, text('site-id'))
    const call = { method: 'GET', path } as const
    note.textContent = 'Loading…'
    const { error, text: body } = await exchange(call, onSend(call))
    if (error !== null) {
      note.textContent = error.status === 404 ? 'There is no such Site.' : 'It could not be loaded.'
      return
    }
    const site = JSON.parse(body) as Site
    byId('site-name', HTMLInputElement).value = site.name
    byId('site-code', HTMLInputElement).value = site.code
    byId('site-description', HTMLTextAreaElement).value = site.description
    const parent = site.parentInfrastructureID ?? null
    byId(parent === null ? 'site-parent-none' : 'site-parent-by-id', HTMLInputElement).checked = true
    byId('site-parent', HTMLInputElement).value = parent === null ? '' : String(parent)
    form.dispatchEvent(new Event('input'))
    note.textContent = 'Loaded as it is now.'
  }

  load.addEventListener('click', () => void loadSite())
  return {
    showSession(session: SignedIn | null): void {
      load.hidden = true
      byId('declared', HTMLElement).hidden = true
      defaultWac = session?.wac ?? ''
      // Who has signed in is known by an operation of the same file.
      if (session?.user != null && defaultWac !== '') void listFluxes()
    },
  }
}
