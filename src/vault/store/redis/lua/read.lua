-- Reads a record, with the server's time.
-- KEYS[1] record
-- returns {milliseconds, value or nil} | {milliseconds, {fields and values}} for a record of version 0.2, a hash
local time = redis.call('TIME')
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then value = redis.call('HGETALL', KEYS[1]) end
return {time[1] * 1000 + math.floor(time[2] / 1000), value}
