-- Deletes a record, so that everything of the session is gone in one step.
-- KEYS[1] record
-- KEYS[2] why it ended and what replaced it; left out, neither is read or written
-- ARGV[1] generation, or '' for any
-- ARGV[2] channel
-- ARGV[3] record key
-- ARGV[4] reason, or '' for none
-- ARGV[5] milliseconds to keep the reason, from the end
-- ARGV[6] idle limit in milliseconds: end it only if a limit has passed; '' to end it at any time
-- ARGV[7] by how many milliseconds the limits may still lie ahead
-- ARGV[8] attempt: end it unless another one holds the lease; '' for any holder
-- ARGV[9] record key of the session that replaces it, or '' for none
-- returns {1, tokens, value at KEYS[2]} ended | {0, ''} a condition does not hold | {-1, what replaced it, or ''} gone
local r = redis.call('HMGET', KEYS[1], 'gen', 'tokens', 'lease')
if not r[1] then
  local kept = KEYS[2] and redis.call('GET', KEYS[2])
  if kept then return {-1, string.match(kept, '^%S+ %S+ (%x+)$') or ''} end
  if KEYS[2] and ARGV[9] ~= '' then
    local clock = redis.call('TIME')
    local at = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
    redis.call('SET', KEYS[2], ARGV[4] .. ' ' .. at .. ' ' .. ARGV[9], 'PX', ARGV[5])
  end
  return {-1, ''}
end
if ARGV[1] ~= '' and r[1] ~= ARGV[1] then return {0, ''} end
if ARGV[8] ~= '' and (r[3] or '') ~= '' and r[3] ~= ARGV[8] then return {0, ''} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local endedAt = now
if ARGV[6] ~= '' then
  local at = redis.call('HMGET', KEYS[1], 'seenAt', 'endsAt')
  local limit = math.min(tonumber(at[1]) + tonumber(ARGV[6]), tonumber(at[2]))
  if now + tonumber(ARGV[7]) < limit then return {0, ''} end
  endedAt = math.min(limit, now)
end
redis.call('DEL', KEYS[1])
local why = ARGV[4] .. ' ' .. string.format('%.0f', endedAt)
if ARGV[9] ~= '' then why = why .. ' ' .. ARGV[9] end
local keep = math.max(1, ARGV[5] - (now - endedAt))
-- Before the reason: if that may not be written, every replica still learns of the end.
redis.call('PUBLISH', ARGV[2], ARGV[3])
if KEYS[2] and ARGV[4] ~= '' then redis.call('SET', KEYS[2], why, 'PX', string.format('%.0f', keep)) end
return {1, r[2], why}
