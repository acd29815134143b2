-- Lists a range of a scope's rows.
-- KEYS: the rows. ARGV: XRANGE or XREVRANGE, its two bounds, limit.
-- Reply: as of that command.
local k, command, from, to = key(), arg(), arg(), arg()
return redis.call(command, k, from, to, 'COUNT', arg())
