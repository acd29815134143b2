-- KEYS: the scope's rows (for its slot only), then each fetched key.
-- ARGV: shift, the kinds to follow for each (fetch), echo.
-- Reply: time, then the list that fetch returns.
local now = clock(tonumber(ARGV[1]))
return { pack64(now) .. ARGV[3], fetch(now, 1, ARGV[2]) }
