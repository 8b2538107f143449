import type { FluxFormat } from './flux-parse.ts'

/** A request to this server. */
export interface Call {
  method: 'GET' | 'POST' | 'PUT'
  path: string
  body?: string
}

/** A request that the lanes show. */
export interface Sent {
  /** To be sent with it: the sandbox knows it by them. */
  headers: Record<string, string>
  /** Tells which status came; 0: no response. */
  arrived(status: number): void
}

/** Shows a request in the lanes, called before it is sent. */
export type Send = (call: Call) => Sent

export interface FluxRequest {
  /** Empty: the server's default. */
  wac: string
  fluxId: string
  format: FluxFormat
}

/** The address of a Flux on this server. */
export function fluxPath({ wac, fluxId, format }: FluxRequest): string {
  const segments = (wac === '' ? [fluxId] : [wac, fluxId]).map(encodeURIComponent)
  return `/flux/${segments.join('/')}?format=${format}`
}

export interface SiteForm {
  route: 'PUT' | 'POST'
  /** Empty: the server's default. */
  wac: string
  siteId: number
  name: string
  description: string
  code: string
  /** null: no parent. */
  parent: number | null
}

/** The call that carries out an UpdateSite, by either route. */
export function siteCall(form: SiteForm): Call & { body: string } {
  const members = membersOf(form)
  if (form.route === 'PUT') {
    const segments = form.wac === '' ? [] : [encodeURIComponent(form.wac)]
    const path = ['/site', ...segments, String(form.siteId)].join('/')
    return { method: 'PUT', path, body: JSON.stringify(members) }
  }
  const body = JSON.stringify({ siteID: form.siteId, ...members, wac: form.wac || undefined })
  return { method: 'POST', path: '/site', body }
}

/** The same with the functions of `client/bff-client.ts`, which takes the route of PUT. */
export function clientCall(form: SiteForm): string {
  const wac = form.wac === '' ? '' : `, ${JSON.stringify({ wac: form.wac })}`
  return `await updateSite(${form.siteId}, ${JSON.stringify(membersOf(form))}${wac})`
}

/** All of them: what the platform does with an absent member is not documented. */
function membersOf({ name, description, code, parent }: SiteForm) {
  return { name, description, code, parentInfrastructureID: parent }
}
