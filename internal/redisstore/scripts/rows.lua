-- Lists a range of a scope's rows.
-- KEYS: the rows. ARGV: XRANGE or XREVRANGE, its two bounds, limit.
-- Reply: as of that command.
return call(ARGV[1], KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4])
