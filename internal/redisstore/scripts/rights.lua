-- Names the commands of this package's scripts that the user may not run here.
-- It is asked beforehand: a command refused in the middle of a step would leave
-- the step half written.
-- KEYS: one key of the store. ARGV: '1' if replicas are waited for, echo.
-- Reply: {echo, the names}.
local k = KEYS[1]
local missing = {}
local needed = {
  { 'time' }, { 'getrange', k, 0, 0 }, { 'mget', k }, { 'exists', k }, { 'set', k, 'v' }, { 'mset', k, 'v' }, { 'del', k },
  { 'zadd', k, 0, 'm' }, { 'zrem', k, 'm' }, { 'zcard', k }, { 'zcount', k, 0, 0 }, { 'zrange', k, 0, 0 },
  { 'zremrangebyscore', k, 0, 0 }, { 'xadd', k, '*', 'd', 'v' }, { 'xinfo', 'stream', k },
  { 'xrange', k, '-', '+' }, { 'xrevrange', k, '+', '-' },
  { 'xtrim', k, 'MINID', 0 },
}
if ARGV[1] == '1' then needed[#needed + 1] = { 'wait', 1, 0 } end
for _, c in ipairs(needed) do
  local known, allowed = pcall(redis.acl_check_cmd, unpack(c))
  if not (known and allowed) then missing[#missing + 1] = c[1] end
end
return { ARGV[2], missing }
