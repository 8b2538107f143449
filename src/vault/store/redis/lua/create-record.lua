-- Creates a record of generation 1 that expires soon unless confirm-record follows.
-- KEYS[1] record
-- ARGV[1] provisional life in milliseconds
-- ARGV[2] tokens, sealed
-- ARGV[3] createdAt
-- ARGV[4] endsAt
-- ARGV[5] flow
-- ARGV[6] client
-- ARGV[7] now, by the same clock as createdAt and endsAt
-- ARGV[8] by how much the two clocks may differ in milliseconds
-- returns 1 created | 0 it exists already
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
-- The replication id shows begin-refresh whether another server has taken over since.
local info = redis.pcall('INFO', 'replication')
local history = type(info) == 'string' and string.match(info, 'master_replid:(%x%x%x%x%x%x%x%x)') or ''
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- This server's clock decides the limits, so a replica with a wrong clock must not create a session that is already old.
local ahead = now - ARGV[7]
if math.abs(ahead) < tonumber(ARGV[8]) then ahead = 0 end
local created = string.format('%.0f', ARGV[3] + ahead)
redis.call('HSET', KEYS[1], 'tokens', ARGV[2], 'gen', 1,
  'createdAt', created, 'seenAt', created, 'endsAt', string.format('%.0f', ARGV[4] + ahead), 'client', ARGV[6],
  'history', history, 'replacedAt', string.format('%.0f', now))
-- Left out where it is the usual one: a ninth field would double the table of the hash.
if ARGV[5] ~= 'code' then redis.call('HSET', KEYS[1], 'flow', ARGV[5]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
