import type { Call } from './call.ts'

/** What a validated request asks of the resource server. */
export type Operation = Pick<Call, 'method' | 'path' | 'accept' | 'contentType' | 'body' | 'jsonp'> & {
  name: 'GetFlux' | 'UpdateSite'
  wac: string
  /** null where it is no flux. */
  fluxId: string | null
}
