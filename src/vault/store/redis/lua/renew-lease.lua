-- Extends the lease of a presentation that has no response yet, and takes it again if the server has lost it.
-- KEYS[1] record
-- ARGV[1] generation that was presented
-- ARGV[2] attempt
-- ARGV[3] doubts about this generation, that of this presentation included
-- ARGV[4] lease in milliseconds
-- returns 1 held | 0 the record has other tokens, or another attempt has taken the lease | -1 gone
local r = redis.call('HMGET', KEYS[1], 'gen', 'lease', 'doubts', 'leasedAt')
if not r[1] then return -1 end
if r[1] ~= ARGV[1] then return 0 end
local held = r[2] or ''
if held ~= ARGV[2] and held ~= '' then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'lease', ARGV[2], 'leaseUntil', string.format('%.0f', now + ARGV[4]),
  'leasedAt', held == ARGV[2] and r[4] or string.format('%.0f', now),
  'doubts', math.max(tonumber(r[3] or 0), tonumber(ARGV[3])))
return 1
