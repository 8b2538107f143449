-- Writes tokens again that the server has lost, as a promoted replica may have.
-- KEYS[1] record
-- ARGV[1] generation of the tokens
-- ARGV[2] attempt
-- ARGV[3] tokens, sealed
-- returns 1 written, now or by the same attempt before | 0 the record has this generation or a newer one | -1 gone
local r = redis.call('HMGET', KEYS[1], 'gen', 'lease', 'leaseUntil', 'attempt')
if not r[1] then return -1 end
if r[1] == ARGV[1] and r[4] == ARGV[2] then return 1 end
if tonumber(r[1]) >= tonumber(ARGV[1]) then return 0 end
-- A lease without a holder is the pause of begin-refresh: another process may still have newer tokens.
local pause = r[2] == '' and r[3] or 0
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', KEYS[1], 'tokens', ARGV[3], 'gen', ARGV[1], 'attempt', ARGV[2],
  'replacedAt', now)
redis.call('HDEL', KEYS[1], 'lease', 'leaseUntil', 'leasedAt', 'openUntil', 'retryAt', 'retrySetAt', 'doubts')
if pause ~= 0 then redis.call('HSET', KEYS[1], 'lease', '', 'leaseUntil', pause) end
return 1
