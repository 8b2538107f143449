-- Puts sessions into the due queue.
-- KEYS[1] due queue
-- ARGV[1] 'NX' to leave those alone that are in it, 'CH' to move them
-- ARGV[2] member and milliseconds until it is due, in turn; further ones follow
-- returns how many were added or moved
local time = redis.call('TIME')
-- The clock of the queue, see claim-due: `ahead` has a negative score.
local clock = time[1] * 1000 + math.floor(time[2] / 1000) - (redis.call('ZSCORE', KEYS[1], 'ahead') or 0)
local changed = 0
-- One at a time: a batch of a scan can be more than Lua unpacks.
for i = 2, #ARGV, 2 do
  changed = changed + redis.call('ZADD', KEYS[1], ARGV[1], string.format('%.0f', clock + ARGV[i + 1]), ARGV[i])
end
return changed
