-- Puts the same tokens, sealed anew, in the place of those that were read. Nothing else changes, and
-- nobody is told: what they open to is the same.
-- KEYS[1] record
-- ARGV[1] tokens, sealed, as they were read
-- ARGV[2] tokens, sealed anew
-- returns 1 put | 0 no record, or it holds others
if redis.call('HGET', KEYS[1], 'tokens') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'tokens', ARGV[2])
return 1
