-- Takes the right to refresh and writes the intent, if the tokens are still of the generation read.
-- KEYS[1] record
-- ARGV[1] generation
-- ARGV[2] attempt
-- ARGV[3] lease in milliseconds
-- ARGV[4] window of a forced refresh in milliseconds, 0 for one that is not forced
-- ARGV[5] pause in milliseconds after the server began another history, as by a failover
-- returns {1, doubts before} granted | {2, 0} replaced | {3, wait} busy | {4, wait} backing off | {5, 0} forced before
--   | {6, wait} paused | {0, 0} gone
local r = redis.call('HMGET', KEYS[1], 'gen', 'lease', 'leaseUntil', 'retryAt', 'doubts', 'forcedAt', 'forcedGen', 'history')
if not r[1] then return {0, 0} end
if r[1] ~= ARGV[1] then return {2, 0} end
local doubts = tonumber(r[5] or 0)
if r[2] == ARGV[2] then return {1, doubts - 1} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local leased = tonumber(r[3] or 0) - now
-- A lease that is nobody's is the pause below.
if leased > 0 then return {r[2] == '' and 6 or 3, leased} end
-- Newer tokens may have been lost, and the refresh token here be dead: whoever stored them gets the
-- time to write them again.
local info = redis.pcall('INFO', 'replication')
local history = type(info) == 'string' and string.match(info, 'master_replid:(%x%x%x%x%x%x%x%x)')
if history and r[8] ~= history then
  redis.call('HSET', KEYS[1], 'history', history, 'lease', '', 'leaseUntil', string.format('%.0f', now + ARGV[5]))
  return {6, tonumber(ARGV[5])}
end
local backoff = tonumber(r[4] or 0) - now
local window = tonumber(ARGV[4])
local forcedBefore = window > 0 and tonumber(r[6] or 0) + window > now
-- One that brought new tokens is enough; one that came to nothing waits like any other.
if forcedBefore and r[7] ~= ARGV[1] then return {5, 0} end
if backoff > 0 and (window == 0 or forcedBefore) then return {4, backoff} end
if window > 0 then
  redis.call('HSET', KEYS[1], 'forcedAt', string.format('%.0f', now), 'forcedGen', ARGV[1])
end
redis.call('HSET', KEYS[1], 'lease', ARGV[2], 'leaseUntil', string.format('%.0f', now + ARGV[3]), 'doubts', doubts + 1)
return {1, doubts}
