import type { AnswerName, Profile, RecordedAnswer } from './profile.ts'
import { type SandboxResponse, withHeaders } from './response.ts'

/** The table of answers of a sandbox: that of its profile, or none. */
export interface Answers {
  /** The first recorded answer of these names of the token or revocation endpoint, else `plain`. */
  token(names: readonly AnswerName[], plain: SandboxResponse): SandboxResponse
  /** `response` with the header fields that the profile's token endpoint sends. */
  underTokenHeaders(response: SandboxResponse): SandboxResponse
  /** The recorded refusal of the resource guard, else `plain`. */
  guard(name: AnswerName, plain: () => SandboxResponse): SandboxResponse
  /** The recorded answer to an authorization request: a page, or parameters for the callback; null: none. */
  authorize(name: AnswerName): SandboxResponse | { readonly back: Readonly<Record<string, string>> } | null
  /** A further page of the server; null: none. */
  page(path: string): SandboxResponse | null
}

/** `issuer`: the own address, once it is known. */
export function createAnswers(profile: Profile | null, issuer: () => string): Answers {
  const find = (name: AnswerName): RecordedAnswer | null => profile?.answers[name] ?? null

  /** A recorded response; without a body it has no content type. */
  function write(
    answer: RecordedAnswer,
    outcome: string,
    common: Readonly<Record<string, string>>,
  ): SandboxResponse | null {
    if ('back' in answer) return null
    const { status, headers = {}, body = '' } = answer
    const own = (text: string): string => text.replaceAll('{issuer}', issuer())
    const text = own(typeof body === 'string' ? body : JSON.stringify(body))
    const fields = Object.entries({ ...common, ...headers }).filter(
      ([name]) => text !== '' || name !== 'content-type' || Object.hasOwn(headers, name),
    )
    return {
      status,
      headers: Object.fromEntries(fields.map(([name, value]) => [name, own(value)])),
      body: Buffer.from(text),
      outcome,
    }
  }

  return {
    token(names, plain) {
      const answer = names.map(find).find((found) => found !== null)
      if (profile === null || answer === undefined || answer === null) return plain
      return write(answer, plain.outcome, profile.tokenHeaders) ?? plain
    },
    underTokenHeaders(response) {
      return profile === null ? response : withHeaders(response, profile.tokenHeaders)
    },
    guard(name, plain) {
      const answer = find(name)
      return (answer === null ? null : write(answer, 'invalid_token', profile?.guardHeaders ?? {})) ?? plain()
    },
    authorize(name) {
      const answer = find(name)
      if (answer === null || 'back' in answer) return answer
      return write(answer, name.replace('authorize: ', ''), {})
    },
    page(path) {
      const recorded = profile?.pages?.[path]
      return recorded === undefined ? null : write(recorded, 'page', {})
    },
  }
}
