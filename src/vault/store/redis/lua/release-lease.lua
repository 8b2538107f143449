-- Releases the lease without new tokens.
-- KEYS[1] record
-- ARGV[1] attempt
-- ARGV[2] 0 when this presentation leaves no doubt, else how many it leaves, itself included
-- ARGV[3] no refresh for so many milliseconds
-- ARGV[4] generation that was presented
-- returns 1 released | 2 not the holder, but the doubt had been lost and is written | 0 not the holder
local r = redis.call('HMGET', KEYS[1], 'lease', 'doubts', 'gen', 'retryAt')
local ours = r[1] == ARGV[1]
local left = tonumber(ARGV[2])
-- A server that knows fewer doubts than this presentation left has lost its lease.
local lost = not ours and r[3] == ARGV[4] and left > tonumber(r[2] or 0)
if not ours and not lost then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local retryAt = now + ARGV[3]
if ours then
  redis.call('HSET', KEYS[1], 'lease', '', 'leaseUntil', 0, 'retryAt', string.format('%.0f', retryAt), 'retrySetAt', string.format('%.0f', now),
    'doubts', tonumber(r[2]) - (left == 0 and 1 or 0))
else
  redis.call('HSET', KEYS[1], 'retryAt', string.format('%.0f', math.max(retryAt, tonumber(r[4] or 0))),
    'retrySetAt', string.format('%.0f', now), 'doubts', left)
end
return ours and 1 or 2
