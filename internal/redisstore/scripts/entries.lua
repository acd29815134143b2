-- Lists a range of an index by rank, so that a page can start behind an entry
-- that has been removed since.
-- KEYS: the index. ARGV: from and to ('-inf' and '+inf' when unbounded; from is
-- included, to is not), limit, '1' for newest first, '1' when an entry to start
-- behind follows: its score and member; last the echo.
-- Reply: {echo, {member, score, ... in rising order}}.
local k, from, to, limit = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local newest, after = ARGV[4] == '1', ARGV[5] == '1'

-- below counts the entries with a lower score.
local function below(score)
  if score == '-inf' then return 0 end
  if score == '+inf' then return call('ZCARD', k) end
  return call('ZCOUNT', k, '-inf', '(' .. score)
end

-- before compares bytes as Redis orders members.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- rank counts the entries in front of (score, member), that entry included or not.
local function rank(score, member, included)
  local low = below(score)
  local high = low + call('ZCOUNT', k, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local m = call('ZRANGE', k, middle, middle)[1]
    if before(m, member) or (included and m == member) then low = middle + 1 else high = middle end
  end
  return low
end

local first, last = below(from), below(to) - 1
if after then
  local score, member = ARGV[6], ARGV[7]
  if newest then
    last = math.min(last, rank(score, member, false) - 1)
  else
    first = math.max(first, rank(score, member, true))
  end
end
if newest then
  first = math.max(first, last - limit + 1)
else
  last = math.min(last, first + limit - 1)
end
if last < first then return { ARGV[#ARGV], {} } end
return { ARGV[#ARGV], call('ZRANGE', k, first, last, 'WITHSCORES') }
