-- Lists a range of a scope's rows.
-- KEYS: the rows. ARGV: XRANGE or XREVRANGE, its two bounds, limit, echo.
-- Reply: {echo, as of that command}.
return { ARGV[5], call(ARGV[1], KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4]) }
