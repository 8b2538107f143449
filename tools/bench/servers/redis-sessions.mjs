// Sessions in Redis for the store interface of express-session. Smaller than the usual
// packages, which can only favour the servers that use it.
import { Redis } from 'ioredis'

const LIFE_SECONDS = 7_200

export function createRedisSessions(prefix) {
  const redis = new Redis({ port: Number(process.env.REDIS_PORT), host: '127.0.0.1' })
  return {
    get(id, done) {
      redis.get(prefix + id).then((text) => done(null, text === null ? null : JSON.parse(text)), done)
    },
    set(id, session, done) {
      redis.set(prefix + id, JSON.stringify(session), 'EX', LIFE_SECONDS).then(() => done(null), done)
    },
    destroy(id, done) {
      redis.del(prefix + id).then(() => done(null), done)
    },
  }
}
