import { type Kind, listOf, quoted, Refused } from './kinds.ts'

/** A further answer of the token endpoint that means: this refresh token is dead. */
export interface RefusedGrant {
  readonly status: number
  /** The OAuth error code; null: the answer has no body. */
  readonly code: string | null
}

const SHAPE = /^(\d{3}):([a-z_]{1,64})$/
/** They say nothing of the grant: a wrong secret would sign out every user. */
const OF_THE_CLIENT = /^(?:invalid_client|unauthorized_client)$/

const REFUSED_GRANT: Kind<RefusedGrant> = {
  accepts:
    '`STATUS:CODE` or `STATUS:empty`: a status from 400 to 499 but 429, and an OAuth error code of 1 to 64 of `a-z _`, or `empty` for an answer without a body',
  read(text) {
    const [, digits, word = ''] = SHAPE.exec(text) ?? []
    const status = Number(digits)
    if (digits === undefined) return new Refused(`must be ${REFUSED_GRANT.accepts}, but is ${quoted(text)}`)
    if (status < 400 || status > 499 || status === 429)
      return new Refused(
        `must have a status from 400 to 499 but 429, but is ${quoted(text)}: no other status says that the grant is refused`,
      )
    if (OF_THE_CLIENT.test(word))
      return new Refused(
        `must not name ${word}, but is ${quoted(text)}: it is about CLIENT_ID and CLIENT_SECRET, and a wrong secret would end every session`,
      )
    return { status, code: word === 'empty' ? null : word }
  },
}

/** The further answers that mean a dead refresh token. */
export const REFUSED_GRANTS = listOf(REFUSED_GRANT)
