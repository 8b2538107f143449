-- Gives the lease back without new tokens, and wakes those who wait for it.
-- KEYS[1] record
-- ARGV[1] attempt
-- ARGV[2] 1 when this presentation leaves no doubt, else 0
-- ARGV[3] no refresh for so many milliseconds
-- ARGV[4] channel
-- ARGV[5] record key
-- returns 1 given back | 0 not ours
local r = redis.call('HMGET', KEYS[1], 'lease', 'doubts')
if r[1] ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'lease', '', 'leaseUntil', 0, 'retryAt', string.format('%.0f', now + ARGV[3]),
  'doubts', tonumber(r[2]) - tonumber(ARGV[2]))
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1
