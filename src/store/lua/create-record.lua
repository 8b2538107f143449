-- Makes a record of generation 1 that dies soon unless save-session confirms it.
-- KEYS[1] record
-- ARGV[1] attempt
-- ARGV[2] provisional life in milliseconds
-- ARGV[3] tokens, sealed
-- ARGV[4] createdAt
-- ARGV[5] endsAt
-- ARGV[6] flow
-- ARGV[7] client
-- returns 1 made | 0 it is there already
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'session', '{}', 'tokens', ARGV[3], 'gen', 1, 'attempt', ARGV[1],
  'createdAt', ARGV[4], 'seenAt', ARGV[4], 'endsAt', ARGV[5], 'flow', ARGV[6], 'client', ARGV[7])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
