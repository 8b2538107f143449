import { WAC } from '../paths.ts'
import { FORMATS, type Operation, segmentsOf } from './operation.ts'

/**
 * GetFlux (service document, section 4.2). What the queries of the built-in operations take cannot be listed: it is in
 * `proxy/`, and `query` is empty.
 */
export const GET_FLUX: Operation = {
  name: 'GetFlux',
  method: 'GET',
  segments: segmentsOf('/{wac}/flux/{fluxId}'),
  account: 'path',
  parameters: { fluxId: 'id' },
  query: {},
  formats: FORMATS,
  formatInQuery: true,
  body: null,
  response: null,
  application: false,
}

/** Body of UpdateSite (service document, section 4.3). The members of the path may be repeated, if they agree. */
export const SITE_UPDATE = {
  type: 'object',
  description: 'What the platform does with a member that is absent is not documented: send all of them.',
  additionalProperties: false,
  properties: {
    wType: { type: 'string', enum: ['UpdateSite'] },
    siteID: { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
    wac: { type: 'string', pattern: WAC.source },
    name: { type: ['string', 'null'] },
    description: { type: ['string', 'null'] },
    code: { type: ['string', 'null'] },
    parentInfrastructureID: {
      type: ['integer', 'null', 'string'],
      minimum: Number.MIN_SAFE_INTEGER,
      maximum: Number.MAX_SAFE_INTEGER,
      maxLength: 0,
      description: 'null or an empty text: no parent.',
    },
  },
} as const

/** Body of UpdateSite where it names the Site. */
export const SITE_UPDATE_WITH_TARGET = { ...SITE_UPDATE, required: ['siteID'] } as const

/** UpdateSite by its first route (service document, section 4.3). */
export const UPDATE_SITE: Operation = {
  name: 'UpdateSite',
  method: 'PUT',
  segments: segmentsOf('/{wac}/Infrastructure/Site/{siteID}'),
  account: 'path',
  parameters: { siteID: 'integer' },
  query: {},
  formats: ['JSON'],
  formatInQuery: true,
  response: null,
  body: {
    schema: SITE_UPDATE,
    set: { wType: { value: 'UpdateSite' }, siteID: { from: 'siteID' }, wac: { from: 'wac' } },
    exactNames: true,
  },
  application: false,
}

/** UpdateSite by its second route, which names the Site in the body. */
export const UPDATE_SITE_IN_BODY: Operation = {
  ...UPDATE_SITE,
  method: 'POST',
  segments: segmentsOf('/json/reply/UpdateSite'),
  account: 'body',
  parameters: {},
  body: {
    schema: SITE_UPDATE_WITH_TARGET,
    set: { wType: { value: 'UpdateSite' } },
    exactNames: true,
  },
}

/**
 * The operations that are served without a file, each by routes of its own in proxy/routes.ts. No file may declare one that
 * matches the same request.
 */
export const BUILT_IN: readonly Operation[] = [GET_FLUX, UPDATE_SITE, UPDATE_SITE_IN_BODY]
