-- Hands out due sessions of one shard and moves them on by the length of a claim, so that the work of a replica
-- that dies comes back by itself.
-- KEYS[1] shard of the due queue
-- ARGV[1] claim in milliseconds
-- ARGV[2] how many at most
-- returns {the time, milliseconds until the next is due or -1, record key, how many milliseconds late, ...}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #due, 2 do
  redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', now + ARGV[1]), due[i])
  due[i + 1] = now - tonumber(due[i + 1])
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
table.insert(due, 1, first[2] and math.max(0, tonumber(first[2]) - now) or -1)
table.insert(due, 1, now)
return due
