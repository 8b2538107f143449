-- Takes the lease and counts the doubt of its presentation, if the tokens are still of the generation read.
-- KEYS[1] record
-- ARGV[1] generation
-- ARGV[2] attempt
-- ARGV[3] lease in milliseconds
-- ARGV[4] window of a forced refresh in milliseconds, 0 for one that is not forced
-- ARGV[5] pause in milliseconds after the replication history has changed, as by a failover
-- ARGV[6] milliseconds from the start of a lease during which its presentation is open: may still get a response
-- ARGV[7] longest back-off in milliseconds
-- returns {1, doubts before, how long an earlier presentation may still get a response, age of the tokens or -1} granted
--   | {2, 0} replaced
--   | {3, wait, age} busy | {4, wait} backing off | {5, 0} forced before | {6, wait} paused | {0, 0} gone
local r = redis.call('HMGET', KEYS[1], 'gen', 'lease', 'leaseUntil', 'retryAt', 'doubts', 'forcedAt', 'forcedGen', 'history',
  'leasedAt', 'openUntil', 'retrySetAt', 'replacedAt')
if not r[1] then return {0, 0} end
if r[1] ~= ARGV[1] then return {2, 0} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local doubts = tonumber(r[5] or 0)
local lease = tonumber(ARGV[3])
local open = tonumber(ARGV[6])
-- No later than now, where the clock has stepped back since.
local leasedAt = math.min(tonumber(r[9] or 0), now)
local openUntil = math.min(tonumber(r[10] or 0), now + open)
local age = r[12] and now - tonumber(r[12]) or -1
local function granted(before) return {1, before, math.max(0, openUntil - now), age} end
if r[2] == ARGV[2] then return granted(doubts - 1) end
local leased = tonumber(r[3] or 0) - now
if leased > lease then
  -- The clock has stepped back since: nobody waits longer than a lease.
  leased = lease
  redis.call('HSET', KEYS[1], 'leaseUntil', string.format('%.0f', now + lease))
end
-- A lease without a holder is the pause that is set below.
if leased > 0 then
  if r[2] == '' then return {6, leased} end
  return {3, leased, now - leasedAt}
end
-- A lease that lapsed and was never released: its holder may still receive a response.
if (r[2] or '') ~= '' then openUntil = math.max(openUntil, leasedAt + open) end
-- This server may have lost newer tokens, so the refresh token here may be used up. The process that stored the newer
-- ones gets the time to write them again.
local info = redis.pcall('INFO', 'replication')
local history = type(info) == 'string' and string.match(info, 'master_replid:(%x%x%x%x%x%x%x%x)')
if history and r[8] ~= history then
  redis.call('HSET', KEYS[1], 'history', history, 'lease', '', 'leaseUntil', string.format('%.0f', now + ARGV[5]),
    'openUntil', string.format('%.0f', openUntil))
  return {6, tonumber(ARGV[5])}
end
local retrySetAt = tonumber(r[11] or 0)
local backoff = math.min(tonumber(r[4] or 0), retrySetAt + ARGV[7]) - now
-- Written by a clock that has stepped back since.
if retrySetAt > now then backoff = 0 end
local window = tonumber(ARGV[4])
local forcedAt = tonumber(r[6] or 0)
local forcedBefore = window > 0 and forcedAt <= now and forcedAt + window > now
-- One forced refresh that brought new tokens is enough; a failed one backs off like any other.
if forcedBefore and r[7] ~= ARGV[1] then return {5, 0} end
if backoff > 0 and (window == 0 or forcedBefore) then return {4, backoff} end
if window > 0 then
  redis.call('HSET', KEYS[1], 'forcedAt', string.format('%.0f', now), 'forcedGen', ARGV[1])
end
redis.call('HSET', KEYS[1], 'lease', ARGV[2], 'leaseUntil', string.format('%.0f', now + lease),
  'leasedAt', string.format('%.0f', now), 'openUntil', string.format('%.0f', openUntil), 'doubts', doubts + 1)
return granted(doubts)
