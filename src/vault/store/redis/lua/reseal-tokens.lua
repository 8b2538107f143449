-- Replaces the tokens that were read by the same tokens, sealed again. Nothing else changes: what
-- they open to is the same.
-- KEYS[1] record
-- ARGV[1] tokens, sealed, as they were read
-- ARGV[2] tokens, sealed again
-- returns 1 written | 0 no record, or it holds others
if redis.call('HGET', KEYS[1], 'tokens') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'tokens', ARGV[2])
return 1
