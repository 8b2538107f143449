-- Counts one more try of a bucket; the first one begins a window.
-- KEYS[1] bucket
-- ARGV[1] length of the window in milliseconds
-- returns {count, milliseconds left of the window}
local count = redis.call('INCR', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
-- A longer one was begun by a clock that has stepped back since.
if left < 0 or left > tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  left = tonumber(ARGV[1])
end
return {count, left}
