import { callbacks } from './callback.ts'
import { cookieHeaders } from './cookies.ts'
import type { Fuzzer } from './fuzzer.ts'
import { operations } from './operations.ts'
import { requests } from './requests.ts'
import { returnAddress } from './return-address.ts'
import { tokenResponses } from './token-responses.ts'
import { upstreamResponses } from './upstream-responses.ts'

export const FUZZERS: readonly Fuzzer[] = [
  cookieHeaders,
  callbacks,
  returnAddress,
  operations,
  requests,
  tokenResponses,
  upstreamResponses,
]
