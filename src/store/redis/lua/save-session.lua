-- Updates what @fastify/session keeps in a record that exists, and gives the record its whole life.
-- KEYS[1] record
-- ARGV[1] session, JSON
-- ARGV[2] idle limit in milliseconds
-- ARGV[3] slack in milliseconds
-- returns 1 saved | 0 no record
local at = redis.call('HMGET', KEYS[1], 'seenAt', 'endsAt')
if not at[1] then return 0 end
redis.call('HSET', KEYS[1], 'session', ARGV[1])
local life = math.min(tonumber(at[1]) + tonumber(ARGV[2]), tonumber(at[2])) + tonumber(ARGV[3])
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', life))
return 1
