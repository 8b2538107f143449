// The lower bound for Node: node:http for requests, undici's dispatch for upstream, nothing else.
import { createServer } from 'node:http'
import { forward } from './dispatch.mjs'

const server = createServer(forward)
server.keepAliveTimeout = 72_000
server.listen(Number(process.env.PORT), '127.0.0.1')
