import { callbacks } from './callback.ts'
import { cookieHeaders } from './cookies.ts'
import type { Fuzzer } from './fuzzer.ts'
import { requests } from './requests.ts'
import { returnAddress } from './return-address.ts'
import { tokenAnswers } from './token-answers.ts'
import { upstreamAnswers } from './upstream-answers.ts'

export const FUZZERS: readonly Fuzzer[] = [
  cookieHeaders,
  callbacks,
  returnAddress,
  requests,
  tokenAnswers,
  upstreamAnswers,
]
