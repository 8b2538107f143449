-- Writes a record if its facts are still those that were read.
-- KEYS[1] record
-- KEYS[2] why the session ended; left out, that is not written
-- ARGV[1] facts as they were read; '' if there was no record
-- ARGV[2] facts; '' deletes the record
-- ARGV[3] sealed tokens; '' leaves them as they are
-- ARGV[4] when the record expires, epoch milliseconds; '' leaves that as it is
-- ARGV[5] replication id that the step has seen; '' if it has not looked
-- ARGV[6] why the session ended; '' for no reason
-- ARGV[7] until when that is kept, epoch milliseconds
-- returns {1, milliseconds} written | {0, 0} the facts are others | {-1, replication id} it is another one
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) ~= ARGV[1] then return {0, 0} end
if ARGV[5] ~= '' then
  local info = redis.pcall('INFO', 'replication')
  local history = type(info) == 'string' and string.match(info, 'master_replid:(%x%x%x%x%x%x%x%x)')
  if history and history ~= ARGV[5] then return {-1, history} end
end
local time = redis.call('TIME')
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
elseif ARGV[3] == '' and #ARGV[2] == #ARGV[1] then
  -- In place: neither Redis replicas nor the append-only file get the tokens again.
  redis.call('SETRANGE', KEYS[1], 0, ARGV[2])
  if ARGV[4] ~= '' then redis.call('PEXPIREAT', KEYS[1], ARGV[4]) end
else
  local tokens = ARGV[3] == '' and redis.call('GETRANGE', KEYS[1], #ARGV[1], -1) or ARGV[3]
  if ARGV[4] == '' then redis.call('SET', KEYS[1], ARGV[2] .. tokens, 'KEEPTTL')
  else redis.call('SET', KEYS[1], ARGV[2] .. tokens, 'PXAT', ARGV[4]) end
end
if KEYS[2] and ARGV[6] ~= '' then redis.call('SET', KEYS[2], ARGV[6], 'PXAT', ARGV[7]) end
return {1, time[1] * 1000 + math.floor(time[2] / 1000)}
