import { ENDPOINTS } from './faults.ts'

/** JSON schemas of what `/_sandbox/…` accepts: a misspelled switch must not pass as "nothing happens". */

const which = {
  point: { enum: ['before', 'after'] },
  times: { type: 'integer', minimum: 1 },
  only: { type: 'string' },
}

const COMMON_MODES = ['ok', 'status', 'html', 'slow', 'hang', 'drop', 'truncated', 'cut', 'stall'] as const

function responseFault(ownModes: readonly string[]) {
  return {
    type: 'object',
    required: ['mode'],
    additionalProperties: false,
    properties: {
      ...which,
      mode: { enum: [...COMMON_MODES, ...ownModes] },
      status: { type: 'integer', minimum: 200, maximum: 599 },
      headers: { type: 'object', additionalProperties: { type: 'string' } },
      body: { type: 'string' },
      ms: { type: 'integer', minimum: 0 },
      error: { type: 'string' },
    },
    anyOf: [
      { properties: { mode: { const: 'status' } }, required: ['status'] },
      { properties: { mode: { const: 'slow' } }, required: ['ms'] },
      { properties: { mode: { not: { enum: ['status', 'slow'] } } } },
    ],
  }
}

const textOrNull = { type: ['string', 'null'] }

const secondsOrNull = { type: ['number', 'null'], minimum: 0 }

/** Members of a token response to put in, and members to take out. */
const patch = {
  type: 'object',
  additionalProperties: false,
  properties: {
    set: { type: 'object' },
    remove: { type: 'array', items: { type: 'string' } },
  },
}

export const faultsSchema = {
  type: 'object',
  additionalProperties: false,
  properties: {
    state: { enum: ['none', 'echo', 'wrong'] },
    issuer: textOrNull,
    authorizeError: textOrNull,
    exactRedirect: { type: 'boolean' },
    redirectAtTokenEndpoint: { enum: ['check', 'ignore'] },
    clientAuth: { enum: ['post', 'basic', 'any', 'any-for-codes', 'post-for-tokens'] },
    publicClient: { type: 'boolean' },
    clientCheck: { enum: ['first', 'last'] },
    pkce: { enum: ['honour', 'ignore', 'require'] },
    nonce: { enum: ['optional', 'required'] },
    promptNone: { enum: ['page', 'refuse', 'refuse-anywhere', 'check'] },
    codeReuse: { enum: ['revoke', 'refuse'] },
    tokenLifeSeconds: { type: 'number', minimum: 0 },
    expiresIn: {
      anyOf: [
        { enum: ['truth', 'absent'] },
        { type: 'object', required: ['value'], additionalProperties: false, properties: { value: {} } },
      ],
    },
    omitRefreshToken: { enum: [false, true, 'at-refresh', 'last-use'] },
    sameRefreshToken: { type: 'boolean' },
    refreshReuse: { enum: ['revoke', 'refuse', 'allow', 'until-first-use'] },
    refreshGraceSeconds: { type: 'number', minimum: 0 },
    graceTokens: { enum: ['new', 'same'] },
    refreshLifeSeconds: secondsOrNull,
    refreshExpiresIn: { enum: [null, 'refresh_expires_in', 'refresh_token_expires_in'] },
    grantLifeSeconds: secondsOrNull,
    oneGrantPerUser: { enum: [false, true, 'refresh-token'] },
    endedAccess: { enum: ['refused', 'valid'] },
    revocation: { enum: ['cascade', 'both', 'pair', 'each', 'nothing', 'absent'] },
    database: { enum: ['there', 'away'] },
    absentMembers: { enum: ['keep', 'clear'] },
    rotateAccess: { type: 'boolean' },
    tokenAnswer: patch,
    refreshAnswer: patch,
    tokenEndpoint: responseFault(['refuse', 'invalid_client']),
    revocationEndpoint: responseFault(['refuse', 'invalid_client']),
    resource: responseFault(['invalid-token']),
    invalidToken: { enum: ['standard', 'bare401', 'json400', 'challenge403', 'servicestack', 'code400'] },
    resourceHeaders: {
      type: 'object',
      additionalProperties: {
        anyOf: [textOrNull, { type: 'array', items: { type: 'string' } }],
      },
    },
    resourceEncoding: { enum: ['identity', 'gzip', 'deflate', 'br'] },
  },
}

export const holdSchema = {
  type: 'object',
  required: ['endpoint'],
  additionalProperties: false,
  properties: {
    endpoint: { enum: ENDPOINTS },
    point: which.point,
    only: which.only,
  },
}

export const releaseSchema = {
  type: ['object', 'null'],
  additionalProperties: false,
  properties: { id: { type: 'integer' } },
}

export const revokeSchema = {
  type: ['object', 'null'],
  additionalProperties: false,
  properties: { username: { type: 'string' }, reason: { enum: ['withdrawn', 'account deleted'] } },
}

export const scenarioSchema = {
  type: 'object',
  properties: { seconds: { type: 'string', pattern: '^\\d+(\\.\\d+)?$' } },
}
