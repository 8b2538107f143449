-- Writes tokens again that the server has lost, as a promoted replica may have.
-- KEYS[1] record
-- ARGV[1] generation of the tokens
-- ARGV[2] tokens, sealed
-- ARGV[3] channel
-- ARGV[4] record key
-- returns 1 written | 0 the record has this generation or a newer one | -1 gone
local r = redis.call('HMGET', KEYS[1], 'gen', 'lease', 'leaseUntil')
if not r[1] then return -1 end
if tonumber(r[1]) >= tonumber(ARGV[1]) then return 0 end
-- A lease that is nobody's is begin-refresh's pause: others may have newer tokens still.
local pause = r[2] == '' and r[3] or 0
redis.call('HSET', KEYS[1], 'tokens', ARGV[2], 'gen', ARGV[1], 'attempt', '',
  'lease', '', 'leaseUntil', pause, 'retryAt', 0, 'doubts', 0)
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
