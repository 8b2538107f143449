-- Deletes a record, so that everything of the session is gone in one step.
-- KEYS[1] record
-- KEYS[2] why it ended; left out, it is not written
-- ARGV[1] generation, or '' for any
-- ARGV[2] reason, or '' for none
-- ARGV[3] milliseconds to keep the reason, from the end
-- ARGV[4] idle limit in milliseconds: end it only if a limit has passed; '' to end it at any time
-- ARGV[5] by how many milliseconds the limits may still lie ahead
-- ARGV[6] attempt: end it unless another one holds the lease; '' for any holder
-- returns {1, tokens, value at KEYS[2]} ended | {0, ''} a condition does not hold | {-1, ''} gone
local r = redis.call('HMGET', KEYS[1], 'gen', 'tokens', 'lease')
if not r[1] then return {-1, ''} end
if ARGV[1] ~= '' and r[1] ~= ARGV[1] then return {0, ''} end
if ARGV[6] ~= '' and (r[3] or '') ~= '' and r[3] ~= ARGV[6] then return {0, ''} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local endedAt = now
if ARGV[4] ~= '' then
  local at = redis.call('HMGET', KEYS[1], 'seenAt', 'endsAt')
  local limit = math.min(tonumber(at[1]) + tonumber(ARGV[4]), tonumber(at[2]))
  if now + tonumber(ARGV[5]) < limit then return {0, ''} end
  endedAt = math.min(limit, now)
end
redis.call('DEL', KEYS[1])
local why = ARGV[2] .. ' ' .. string.format('%.0f', endedAt)
local keep = math.max(1, ARGV[3] - (now - endedAt))
if KEYS[2] and ARGV[2] ~= '' then redis.call('SET', KEYS[2], why, 'PX', string.format('%.0f', keep)) end
return {1, r[2], why}
