import type { Faults } from './faults.ts'
import type { DeclaredOperation } from './operations.ts'
import type { Profile } from './profile.ts'

/** A person who can sign in on the authorize page. */
export interface SandboxUser {
  username: string
  password: string
  /** Account codes in which the user has a role; absent: all of them. */
  wacs?: readonly string[]
}

/** The one registered client application (document section 5.2). */
interface SandboxClient {
  clientId: string
  clientSecret: string
  /** The registered callback address: redirect addresses must have its host name. */
  callback: string
}

export interface SandboxOptions {
  client: SandboxClient
  /** Default: `alice` / `wonderland` and `bob` / `builder`. The first one owns the client. */
  users?: readonly SandboxUser[]
  /** Account codes that exist. Default: `DEMO` and `ACME`. */
  wacs?: readonly string[]
  /** Life of an access token. Default 3600 (document section 8). */
  tokenLifeSeconds?: number
  /** Life of an authorization code. Default 60. */
  codeLifeSeconds?: number
  /**
   * The only scope that is granted. Default: any absolute http or https address, since the sandbox
   * cannot know by which address the client reaches it.
   */
  scope?: string
  /** Who may use the password grant. Default `owner`, as the document has it (section 5.4). */
  passwordGrant?: 'owner' | 'everyone' | 'off'
  /** The measured server that it answers as. Default: none, the platform of the document. */
  profile?: Profile | null
  /** Switches that differ from the well-behaved platform from the start, and after a reset. */
  faults?: Partial<Faults>
  /** Path in front of `/oauth/…`, for example `/identity`. Default none. */
  authPath?: string
  /** Path in front of the resource routes, for example `/api`. Default none. */
  resourcePath?: string
  /** Operations that the document does not show. What is not invented here is echoed. Default none. */
  operations?: readonly DeclaredOperation[]
  /** Whether `/_sandbox/…` is served. Default true. */
  control?: boolean
  /** Entries that the journal keeps. Default 2000. */
  journalSize?: number
  /** Epoch milliseconds. Default `Date.now`. */
  now?: () => number
}

export type Settings = Required<Omit<SandboxOptions, 'scope' | 'faults'>> & {
  scope: string | null
}

/** The options with every default filled in. */
export function settingsOf(options: SandboxOptions): Settings {
  return {
    client: options.client,
    users: options.users ?? [
      { username: 'alice', password: 'wonderland' },
      { username: 'bob', password: 'builder' },
    ],
    wacs: options.wacs ?? ['DEMO', 'ACME'],
    tokenLifeSeconds: options.tokenLifeSeconds ?? 3600,
    codeLifeSeconds: options.codeLifeSeconds ?? 60,
    scope: options.scope ?? null,
    profile: options.profile ?? null,
    passwordGrant: options.passwordGrant ?? 'owner',
    authPath: options.authPath ?? '',
    resourcePath: options.resourcePath ?? '',
    operations: options.operations ?? [],
    control: options.control ?? true,
    journalSize: options.journalSize ?? 2000,
    now: options.now ?? Date.now,
  }
}
