-- Takes a sign-in's nonce for one attempt; the same attempt again takes it again.
-- KEYS[1] nonce
-- ARGV[1] attempt
-- ARGV[2] life in milliseconds
-- returns 1 taken | 0 taken by another attempt
local held = redis.call('GET', KEYS[1])
if held then return held == ARGV[1] and 1 or 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
