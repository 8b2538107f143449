// What does a signed-in GET /flux cost if few connections ask?
import { again, BARE, FLOORS, OURS, UNCACHED } from '../candidates.mjs'
import { callsAt } from './connections.mjs'

const [PACKAGES_ALONE, PACKAGES_THAT_ASK] = FLOORS

export const few = callsAt([1, 2], {
  candidates: [OURS, again(OURS), UNCACHED, BARE, PACKAGES_ALONE, PACKAGES_THAT_ASK],
  reference: BARE,
  times: '× bare',
})
