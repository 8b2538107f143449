-- Makes a session due after a delay, by the clock of the server.
-- KEYS[1] shard of the due queue
-- ARGV[1] record key
-- ARGV[2] milliseconds until it is due
-- returns 1
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]), ARGV[1])
return 1
