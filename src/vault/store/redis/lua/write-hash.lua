-- As write.lua, for a record of version 0.2: a hash. It becomes one text when it gets other tokens.
-- KEYS[1] record
-- KEYS[2] why the session ended; left out, that is not written
-- ARGV[1] values of the fields as they were read, joined by newlines
-- ARGV[2] facts; '' deletes the record
-- ARGV[3] sealed tokens; '' leaves them as they are
-- ARGV[4] when the record expires, epoch milliseconds; '' leaves that as it is
-- ARGV[5] replication id that the step has seen; '' if it has not looked
-- ARGV[6] why the session ended; '' for no reason
-- ARGV[7] until when that is kept, epoch milliseconds
-- ARGV[8] name of a field and its value, in turn; further ones follow
-- returns {1, milliseconds} written | {0, 0} the facts are others | {-1, replication id} it is another one
local held = {}
for i = 8, #ARGV, 2 do
  local value = redis.pcall('HGET', KEYS[1], ARGV[i])
  if type(value) == 'table' then return {0, 0} end
  held[#held + 1] = value or ''
end
if table.concat(held, '\n') ~= ARGV[1] then return {0, 0} end
if ARGV[5] ~= '' then
  local info = redis.pcall('INFO', 'replication')
  local history = type(info) == 'string' and string.match(info, 'master_replid:(%x%x%x%x%x%x%x%x)')
  if history and history ~= ARGV[5] then return {-1, history} end
end
local time = redis.call('TIME')
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
elseif ARGV[3] ~= '' then
  redis.call('SET', KEYS[1], ARGV[2] .. ARGV[3], 'KEEPTTL')
else
  for i = 8, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
if ARGV[2] ~= '' and ARGV[4] ~= '' then redis.call('PEXPIREAT', KEYS[1], ARGV[4]) end
if KEYS[2] and ARGV[6] ~= '' then redis.call('SET', KEYS[2], ARGV[6], 'PXAT', ARGV[7]) end
return {1, time[1] * 1000 + math.floor(time[2] / 1000)}
