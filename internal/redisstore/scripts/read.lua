-- KEYS: the scope's rows (for its slot only), then each fetched key.
-- ARGV: shift, key prefix of the scope's values, number of fetches, then the
-- kinds to follow for each.
-- Reply: time, then the list that fetch returns.
key()
local now = clock(int())
local prefix = arg()
local found = fetch(now, prefix, int())
return { pack64(now), found }
