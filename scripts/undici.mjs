// What the bundle takes from undici, in place of its index, which also loads fetch, caches, mocks and WebSockets:
// 10 MB of memory. The build fails if src/ imports a name that is not here.
import api from 'undici/lib/api/index.js'
import Dispatcher from 'undici/lib/dispatcher/dispatcher.js'

// As its index does: gives every dispatcher `request` and its other methods.
Object.assign(Dispatcher.prototype, api)

export { default as buildConnector } from 'undici/lib/core/connect.js'
export { default as Agent } from 'undici/lib/dispatcher/agent.js'
export { default as Client } from 'undici/lib/dispatcher/client.js'
export { default as Pool } from 'undici/lib/dispatcher/pool.js'
