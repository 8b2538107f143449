/**
 * Settings of the servers under test, and the bounds that the checks derive from them. All times in milliseconds.
 * The bounds are numbers of their own: a change of the server must not move them.
 */

export const REPLICAS = 3
export const TOKEN_TIMEOUT_MS = 2_000
export const UPSTREAM_TIMEOUT_MS = 1_500
/** Life of an access token. The server refreshes it for the last third. */
export const TOKEN_LIFE_SECONDS = 9
export const SESSION_IDLE_SECONDS = 60
export const SHUTDOWN_SECONDS = 12

/** How long a process may present a refresh token after its last contact with Redis: the lease. */
export const LEASE_MS = TOKEN_TIMEOUT_MS + 5_000
/** How long one presentation may have no response before the same refresh token is presented again. */
export const NO_RESPONSE_MS = Math.max(3 * TOKEN_TIMEOUT_MS, 30_000)

/** What a loaded machine may add to every bound. Stalls of the machine that were measured come on top. */
export const SLACK_MS = 350
/** A replica serves a session from memory: the default of SESSION_CACHE_MS. */
export const SESSION_CACHE_MS = 1_000
/** Every call has its response within this. */
export const RESPONSE_MS = TOKEN_TIMEOUT_MS + 3_000
/** What a resource server in trouble adds to that: two timeouts and a forced refresh between them. */
export const RESOURCE_TROUBLE_MS = 2 * UPSTREAM_TIMEOUT_MS + TOKEN_TIMEOUT_MS
/** What Redis in trouble adds: a call that needs a refresh sends several commands, one after the other. */
export const REDIS_TROUBLE_MS = 3_000
/** After a promotion by Sentinel every replica follows within this. */
export const FOLLOW_MS = 4_000
/** From the end of all faults until every living session has been served by every replica. */
export const HEAL_MS = 45_000

export const MAX_MEMORY_BYTES = 400 * 1024 * 1024
export const MAX_REDIS_CONNECTIONS = 30
export const MAX_TOKEN_CONNECTIONS = 128 + 64
