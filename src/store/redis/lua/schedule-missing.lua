-- Adds sessions to a shard of the due queue.
-- KEYS[1] shard of the due queue
-- ARGV[1] 'NX' to leave those alone that are in it, 'LT' to move those forward that would become due later
-- ARGV[2] record key and milliseconds until it is due, in turn; further ones follow
-- returns how many were added
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local entries = {}
for i = 2, #ARGV, 2 do
  entries[i - 1] = string.format('%.0f', now + ARGV[i + 1])
  entries[i] = ARGV[i]
end
return redis.call('ZADD', KEYS[1], ARGV[1], unpack(entries))
