// What does a signed-in GET /flux cost beside servers of the same kind in Go, at few and at many connections?
import { again, BARE, GO_PEERS, OURS, UNCACHED } from '../candidates.mjs'
import { say } from '../page.mjs'
import { HOW_TO_GET } from '../servers/go-peers.mjs'
import { callsAt } from './connections.mjs'

const question = callsAt([2, 64], {
  candidates: [OURS, again(OURS), UNCACHED, BARE, ...GO_PEERS],
  reference: OURS,
  times: '× this server',
})

export const peers = {
  ...question,
  async measure(services, options) {
    if (GO_PEERS.some(({ isInstalled }) => !isInstalled())) say(HOW_TO_GET)
    return await question.measure(services, options)
  },
}
