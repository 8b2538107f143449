-- Records activity of the browser, never moving it back, and moves the record's expiry with it.
-- KEYS[1] record
-- ARGV[1] idle limit in milliseconds
-- ARGV[2] slack in milliseconds
-- returns 1 recorded | 0 no record
local at = redis.call('HMGET', KEYS[1], 'seenAt', 'endsAt')
if not at[1] then return 0 end
local seen = tonumber(at[1])
local idle = tonumber(ARGV[1])
local time = redis.call('TIME')
seen = math.max(seen, time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', KEYS[1], 'seenAt', string.format('%.0f', seen))
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.min(seen + idle, tonumber(at[2])) + tonumber(ARGV[2])))
return 1
