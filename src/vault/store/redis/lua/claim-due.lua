-- Hands out due sessions and moves them on by the length of a claim, so that the work of a replica that dies comes
-- back by itself. The queue has a clock that never goes back: two members with negative scores keep it. `seen` is what
-- it has shown, written once a minute; `ahead` is what the server's clock has lost by stepping back since.
-- KEYS[1] due queue
-- ARGV[1] claim in milliseconds
-- ARGV[2] how many at most
-- returns {the server's time, milliseconds until the next is due or -1, member, how many milliseconds late, ...}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local first = redis.call('ZRANGEBYSCORE', KEYS[1], 0, '+inf', 'LIMIT', 0, 1)
if not first[1] then
  -- Without entries nothing depends on the clock.
  redis.call('DEL', KEYS[1])
  return {now, -1}
end
local seen = -(redis.call('ZSCORE', KEYS[1], 'seen') or 0)
local ahead = -(redis.call('ZSCORE', KEYS[1], 'ahead') or 0)
if now + ahead < seen then
  ahead = seen - now
  redis.call('ZADD', KEYS[1], string.format('%.0f', -ahead), 'ahead')
end
local clock = now + ahead
if clock >= seen + 60000 then redis.call('ZADD', KEYS[1], string.format('%.0f', -clock), 'seen') end
local due = redis.call('ZRANGEBYSCORE', KEYS[1], 0, clock, 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #due, 2 do
  redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', clock + ARGV[1]), due[i])
  due[i + 1] = clock - tonumber(due[i + 1])
end
first = redis.call('ZRANGEBYSCORE', KEYS[1], 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
table.insert(due, 1, math.max(0, tonumber(first[2]) - clock))
table.insert(due, 1, now)
return due
