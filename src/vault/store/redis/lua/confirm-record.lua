-- Gives a provisional record its whole life.
-- KEYS[1] record
-- ARGV[1] idle limit in milliseconds
-- ARGV[2] slack in milliseconds
-- returns 1 confirmed | 0 no record
local at = redis.call('HMGET', KEYS[1], 'seenAt', 'endsAt')
if not at[1] then return 0 end
local life = math.min(tonumber(at[1]) + tonumber(ARGV[1]), tonumber(at[2])) + tonumber(ARGV[2])
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', life))
return 1
