-- Compare-and-set of the tokens on their generation. Needs no lease: if the lease expired but no process
-- replaced the tokens, these are the only live ones. A server with an older generation has lost some.
-- KEYS[1] record
-- ARGV[1] generation
-- ARGV[2] tokens, sealed
-- returns 1 written | 2 the record has these tokens already | 0 it has newer ones | -1 gone
local r = redis.call('HMGET', KEYS[1], 'gen', 'lease', 'leaseUntil')
if not r[1] then return -1 end
local nextGen = tonumber(ARGV[1]) + 1
if tonumber(r[1]) == nextGen and redis.call('HGET', KEYS[1], 'tokens') == ARGV[2] then return 2 end
if tonumber(r[1]) >= nextGen then return 0 end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', KEYS[1], 'tokens', ARGV[2], 'gen', nextGen, 'replacedAt', now)
-- Kept, these fields would take a fifth of a record at rest.
redis.call('HDEL', KEYS[1], 'lease', 'leaseUntil', 'leasedAt', 'openUntil', 'retryAt', 'retrySetAt', 'doubts')
-- A lease without a holder is the pause of begin-refresh: another process may still have newer tokens.
if r[2] == '' and (r[3] or '0') ~= '0' then redis.call('HSET', KEYS[1], 'lease', '', 'leaseUntil', r[3]) end
return 1
