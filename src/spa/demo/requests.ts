import type { FluxFormat } from './flux-parse.ts'

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
  /** Empty texts are not sent. */
  name: string
  description: string
  code: string
  /** `undefined` is not sent: the parent stays; `null`: no parent. */
  parent: number | null | undefined
}

/** The call that carries out an UpdateSite, by either route. */
export function siteCall(form: SiteForm): { method: 'PUT' | 'POST'; path: string; body: string } {
  const members = {
    name: form.name || undefined,
    description: form.description || undefined,
    code: form.code || undefined,
    parentInfrastructureID: form.parent,
  }
  if (form.route === 'PUT') {
    const segments = form.wac === '' ? [] : [encodeURIComponent(form.wac)]
    const path = ['/site', ...segments, String(form.siteId)].join('/')
    return { method: 'PUT', path, body: JSON.stringify(members) }
  }
  const body = JSON.stringify({ siteID: form.siteId, ...members, wac: form.wac || undefined })
  return { method: 'POST', path: '/site', body }
}
