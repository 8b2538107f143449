// The usual way with Express: express-openid-connect with its sessions in Redis, and a proxy middleware.
import { Agent } from 'node:http'
import express from 'express'
import openid from 'express-openid-connect'
import { createProxyMiddleware } from 'http-proxy-middleware'
import { createRedisSessions } from './redis-sessions.mjs'

const port = Number(process.env.PORT)
const app = express()
app.disable('x-powered-by')

app.use(
  openid.auth({
    issuerBaseURL: process.env.AUTH_URL,
    baseURL: `http://127.0.0.1:${port}`,
    clientID: 'bench',
    clientSecret: 'bench-secret',
    clientAuthMethod: 'client_secret_post',
    secret: 'a-secret-of-the-benchmark-longer-than-32-characters',
    authRequired: false,
    authorizationParams: { response_type: 'code', scope: 'openid' },
    session: { store: createRedisSessions('express:') },
  }),
)
app.use(
  '/flux',
  openid.requiresAuth(),
  (request, _response, next) => {
    // Set on the request: the proxy's event fires too late, after the asynchronous session store.
    request.headers.authorization = `Bearer ${request.oidc.accessToken.access_token}`
    delete request.headers.cookie
    next()
  },
  createProxyMiddleware({
    target: `${process.env.UPSTREAM_URL}/flux`,
    agent: new Agent({ keepAlive: true, maxSockets: 128 }),
  }),
)
const server = app.listen(port, '127.0.0.1')
server.keepAliveTimeout = 72_000
