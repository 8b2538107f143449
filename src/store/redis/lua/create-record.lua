-- Creates a record of generation 1 that expires soon unless confirm-record follows.
-- KEYS[1] record
-- ARGV[1] attempt
-- ARGV[2] provisional life in milliseconds
-- ARGV[3] tokens, sealed
-- ARGV[4] createdAt
-- ARGV[5] endsAt
-- ARGV[6] flow
-- ARGV[7] client
-- ARGV[8] now, by the same clock as createdAt and endsAt
-- ARGV[9] by how much the two clocks may differ in milliseconds
-- returns 1 created | 0 it exists already
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
-- The replication id shows begin-refresh whether another server has taken over since.
local info = redis.pcall('INFO', 'replication')
local history = type(info) == 'string' and string.match(info, 'master_replid:(%x%x%x%x%x%x%x%x)') or ''
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- This server's clock decides the limits, so a replica with a wrong clock must not create a session that is already old.
local ahead = now - ARGV[8]
if math.abs(ahead) < tonumber(ARGV[9]) then ahead = 0 end
local created = string.format('%.0f', ARGV[4] + ahead)
redis.call('HSET', KEYS[1], 'tokens', ARGV[3], 'gen', 1, 'attempt', ARGV[1],
  'createdAt', created, 'seenAt', created, 'endsAt', string.format('%.0f', ARGV[5] + ahead), 'flow', ARGV[6],
  'client', ARGV[7], 'history', history, 'replacedAt', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
