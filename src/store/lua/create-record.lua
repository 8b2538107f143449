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
-- By its replication id begin-refresh will know whether the server has been another one since.
local info = redis.pcall('INFO', 'replication')
local history = type(info) == 'string' and string.match(info, 'master_replid:(%x%x%x%x%x%x%x%x)') or ''
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', KEYS[1], 'session', '{}', 'tokens', ARGV[3], 'gen', 1, 'attempt', ARGV[1],
  'createdAt', ARGV[4], 'seenAt', ARGV[4], 'endsAt', ARGV[5], 'flow', ARGV[6], 'client', ARGV[7],
  'history', history, 'replacedAt', now)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
