import { PROBLEM_CODES } from '../errors.ts'

export const PROBLEM = {
  type: 'object',
  description: 'RFC 9457',
  required: ['type', 'title', 'status', 'detail', 'code', 'requestId'],
  properties: {
    type: { type: 'string' },
    title: { type: 'string' },
    status: { type: 'integer' },
    detail: { type: 'string' },
    code: { enum: PROBLEM_CODES, description: 'Stable; what a program should look at.' },
    requestId: { type: 'string' },
    loginUrl: { type: 'string', description: 'Where to navigate to sign in.' },
  },
}

const INSTANT = { type: 'string', format: 'date-time' }
export const SESSION_FACTS = {
  oneOf: [
    {
      type: 'object',
      required: ['authenticated', 'loginUrl'],
      properties: { authenticated: { const: false }, loginUrl: { type: 'string' } },
    },
    {
      type: 'object',
      required: [
        'authenticated',
        'flow',
        'createdAt',
        'idleExpiresAt',
        'expiresAt',
        'accessTokenExpiresAt',
        'refreshable',
        'wac',
      ],
      properties: {
        authenticated: { const: true },
        flow: { type: 'string' },
        createdAt: INSTANT,
        idleExpiresAt: INSTANT,
        expiresAt: INSTANT,
        accessTokenExpiresAt: INSTANT,
        refreshable: { type: 'boolean' },
        wac: { type: ['string', 'null'], description: 'The default account code.' },
      },
    },
  ],
}

export const SITE_UPDATE = {
  type: 'object',
  additionalProperties: false,
  properties: {
    name: { type: 'string' },
    description: { type: 'string' },
    code: { type: 'string' },
    parentInfrastructureID: {
      type: ['integer', 'null'],
      minimum: Number.MIN_SAFE_INTEGER,
      maximum: Number.MAX_SAFE_INTEGER,
      description: 'null: no parent; absent: unchanged.',
    },
    wType: { const: 'UpdateSite' },
    siteID: { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
    wac: { type: 'string', pattern: '^[A-Za-z0-9_-]{1,64}$' },
  },
}

export const PASSWORD_SIGN_IN = {
  type: 'object',
  additionalProperties: false,
  required: ['username', 'password'],
  properties: {
    username: { type: 'string', minLength: 1, maxLength: 1024 },
    password: { type: 'string', minLength: 1, maxLength: 1024, writeOnly: true },
  },
}

export const FRAGMENT_ANSWER = {
  type: 'object',
  description: 'The members of the fragment; access_token or error. Others are ignored.',
  properties: {
    access_token: { type: 'string', writeOnly: true },
    token_type: { type: 'string' },
    expires_in: { type: ['string', 'number', 'null'] },
    scope: { type: 'string' },
    error: { type: 'string' },
    state: { type: 'string' },
    iss: { type: 'string' },
  },
}

export const inPath = (name: string, pattern: string) => ({
  name,
  in: 'path',
  required: true,
  schema: { type: 'string', pattern },
})

export const inQuery = (name: string, schema: object) => ({ name, in: 'query', schema })

export const answer = (description: string) => ({ description })

export const fault = (description: string) => ({
  description,
  content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
})

export const bodyOf = (schema: string) => ({
  required: true,
  content: { 'application/json': { schema: { $ref: `#/components/schemas/${schema}` } } },
})
