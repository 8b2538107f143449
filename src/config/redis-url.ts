import { isIPv4, isIPv6 } from 'node:net'
import { decoded } from '../paths.ts'
import { Secret } from '../secret.ts'
import { HOST_NAME_PATTERN, type Kind, Refused } from './kinds.ts'

/** Credentials of the data nodes; null is not sent. */
interface RedisLogin {
  readonly username: string | null
  readonly password: Secret | null
}

export interface RedisAddress {
  readonly host: string
  readonly port: number
}

/** Where Redis is: one server, Sentinels or a Cluster. */
export type RedisTarget =
  | {
      readonly kind: 'single'
      readonly address: RedisAddress
      readonly db: number
      readonly login: RedisLogin
      readonly tls: boolean
    }
  | {
      readonly kind: 'sentinel'
      readonly sentinels: readonly RedisAddress[]
      readonly master: string
      readonly db: number
      readonly login: RedisLogin
      readonly sentinelPassword: Secret | null
      readonly tls: boolean
    }
  | {
      readonly kind: 'cluster'
      readonly nodes: readonly RedisAddress[]
      readonly login: RedisLogin
      readonly tls: boolean
    }

const REDIS_PORT = 6379
const SENTINEL_PORT = 26379

/**
 * `redis[s]://`, `redis[s]-sentinel://` and `redis[s]-cluster://` as `scheme://[user:password@]hosts[/path]`.
 * No part of the text is ever printed: any part of a mistyped URL may be the password.
 */
export const REDIS_TARGET: Kind<RedisTarget> = {
  accepts: 'a Redis URL: `redis://`, `redis-sentinel://` or `redis-cluster://`, with TLS `rediss…`',
  read(text) {
    const parts = /^redis(s?)(-sentinel|-cluster)?:\/\/([^/]*)(?:\/(.*))?$/i.exec(text)
    if (parts === null) {
      return new Refused(
        'must begin with redis://, rediss://, redis-sentinel://, rediss-sentinel://, redis-cluster:// or rediss-cluster://',
      )
    }
    if (/[?#\s]/.test(text)) {
      return new Refused('must have no query, fragment or space (in a password, percent-encode them)')
    }
    const [, secure, form = '', authority = '', path = ''] = parts
    const tls = secure !== ''
    const at = authority.lastIndexOf('@')
    const login = readLogin(authority.slice(0, Math.max(at, 0)))
    if (login instanceof Refused) return login
    const hosts = readHosts(
      authority.slice(at + 1),
      form.toLowerCase() === '-sentinel' ? SENTINEL_PORT : REDIS_PORT,
    )
    if (hosts instanceof Refused) return hosts
    switch (form.toLowerCase()) {
      case '-sentinel':
        return sentinel(hosts, path, { login, tls })
      case '-cluster':
        if (path !== '')
          return new Refused('must have no path or database number: a Redis Cluster has only database 0')
        return { kind: 'cluster', nodes: hosts, login, tls }
      default:
        return single(hosts, path, { login, tls })
    }
  },
}

/** Where a target is, for people; without credentials. */
export function describeTarget(target: RedisTarget): string {
  switch (target.kind) {
    case 'single':
      return `Redis at ${inUrlForm([target.address])}, database ${target.db}`
    case 'sentinel': {
      const { sentinels, master, db } = target
      return `Redis behind Sentinel at ${inUrlForm(sentinels)}, master ${master}, database ${db}`
    }
    case 'cluster':
      return `Redis Cluster at ${inUrlForm(target.nodes)}`
  }
}

function inUrlForm(addresses: readonly RedisAddress[]): string {
  return addresses.map(({ host, port }) => `${isIPv6(host) ? `[${host}]` : host}:${port}`).join(', ')
}

type Security = Pick<RedisTarget, 'login' | 'tls'>

function single(hosts: RedisAddress[], path: string, { login, tls }: Security): RedisTarget | Refused {
  const [address, ...others] = hosts
  if (address === undefined || others.length > 0) {
    return new Refused('must name one host (several only with redis-sentinel:// and redis-cluster://)')
  }
  const db = readDb(path)
  return db instanceof Refused ? db : { kind: 'single', address, db, login, tls }
}

function sentinel(sentinels: RedisAddress[], path: string, { login, tls }: Security): RedisTarget | Refused {
  const [master = '', dbText = '', ...rest] = path.split('/')
  // The characters that Sentinel accepts in `sentinel monitor <name>`.
  if (!/^[A-Za-z0-9._-]+$/.test(master)) {
    return new Refused("must end in the master's name: redis-sentinel://host1,host2/MASTER")
  }
  const db = rest.length > 0 ? new Refused('must end in /MASTER or /MASTER/db') : readDb(dbText)
  if (db instanceof Refused) return db
  return { kind: 'sentinel', sentinels, master, db, login, sentinelPassword: null, tls }
}

function readDb(text: string): number | Refused {
  if (text === '') return 0
  return /^\d{1,5}$/.test(text) ? Number(text) : new Refused('has a database number that is not a number')
}

function readLogin(userinfo: string): RedisLogin | Refused {
  const colon = userinfo.indexOf(':')
  const username = decoded(colon === -1 ? userinfo : userinfo.slice(0, colon))
  const password = decoded(colon === -1 ? '' : userinfo.slice(colon + 1))
  if (username === null || password === null) {
    return new Refused('has a user name or password with a % that is not percent-encoding (write %25)')
  }
  // Without a password clients skip AUTH, and the connection would silently be the default user's.
  if (username !== '' && password === '') return new Refused('has a user name without a password')
  return { username: username || null, password: password === '' ? null : new Secret(password) }
}

function readHosts(text: string, defaultPort: number): RedisAddress[] | Refused {
  const addresses: RedisAddress[] = []
  for (const [index, entry] of text.split(',').entries()) {
    const [, bracketed, name = '', portText] =
      /^(?:\[([^\]%]*)\]|([^:[\]]*))(?::(\d{1,5}))?$/.exec(entry) ?? []
    const host = bracketed ?? name
    const port = portText === undefined ? defaultPort : Number(portText)
    const hostFits = bracketed === undefined ? isIPv4(host) || HOST_NAME_PATTERN.test(host) : isIPv6(host)
    if (!hostFits || port < 1 || port > 65_535) {
      return new Refused(
        `has a host that is not host, host:port or [IPv6]:port (number ${index + 1}; in a password, percent-encode / and @)`,
      )
    }
    addresses.push({ host, port })
  }
  return addresses
}
