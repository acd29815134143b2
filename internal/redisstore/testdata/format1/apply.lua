-- Applies one ledger.Step, or nothing.
--
-- KEYS and ARGV are read in the order of the code below. First everything that
-- could fail is checked, then everything is written, and last the nonce: the
-- reply itself is what a repeat gets.
-- Reply: {'A', time and counters} applied now; {'R', the same} applied before;
-- {'V', time} voided; {'N', time, list} not applied, with what fetch returns.
local rowskey, noncekey = key(), key()
local shift = int()
local now = clock(shift)
local prefix = arg()
local at, before, drift = int(), int(), int()
local noncelife, voidlife = arg(), arg()

-- 1. A nonce seen before.
local seen = redis.call('GET', noncekey)
if seen then
  local mark = string.sub(seen, 1, 1)
  if mark == 'V' and #seen == 1 then return { 'V', pack64(now) } end
  if mark == 'A' and #seen >= 9 then return { 'R', string.sub(seen, 2) } end
  fail('HFCORRUPT')
end

-- 2. Conditions.
local ok = math.abs(now - at) <= drift and (before == 0 or now < before)
for _ = 1, int() do
  local k, want = key(), arg()
  if ok and version(k, now) ~= want then ok = false end
end

-- The parts are read before the verdict, since the fetches stand behind them.
local deletes, puts, adds, unindex, index, rows, voids = {}, {}, {}, {}, {}, {}, {}
local deleted = {}
for i = 1, int() do
  deletes[i] = key()
  deleted[deletes[i]] = true
end
for i = 1, int() do puts[i] = { key(), arg(), int() } end
for i = 1, int() do adds[i] = { key(), arg(), arg(), int() } end
for i = 1, int() do unindex[i] = { key(), arg() } end
for i = 1, int() do index[i] = { key(), arg(), arg() } end
for i = 1, int() do rows[i] = arg() end
for i = 1, int() do voids[i] = key() end

if not ok then return { 'N', pack64(now), fetch(now, prefix, int()) } end

-- 3. What could fail while writing, checked while nothing is written.
for _, e in ipairs(unindex) do redis.call('ZCARD', e[1]) end
for _, e in ipairs(index) do redis.call('ZCARD', e[1]) end
if #rows > 0 then redis.call('XLEN', rowskey) end
for _, n in ipairs(voids) do redis.call('GET', n) end

-- Counters are 64-bit two's complement, added by halves: a Lua number holds 53.
local function sum(a, b)
  local ahi, alo = struct.unpack('>I4I4', a)
  local bhi, blo = struct.unpack('>I4I4', b)
  local hi, lo = ahi + bhi, alo + blo
  if lo >= TWO32 then hi, lo = hi + 1, lo - TWO32 end
  if hi >= TWO32 then hi = hi - TWO32 end
  if (ahi < TWO31) == (bhi < TWO31) and (hi < TWO31) ~= (ahi < TWO31) then fail('HFOVERFLOW') end
  return struct.pack('>I4I4', hi, lo)
end

local sums, counters = {}, {}
for i, a in ipairs(adds) do
  local k = a[1]
  local count = sums[k]
  if not count and not deleted[k] then
    local v = get(k, now)
    if v then
      if #v ~= 24 or string.sub(v, 1, 8) ~= NONE then fail('HFCORRUPT') end
      count = string.sub(v, 17)
    end
  end
  sums[k] = sum(count or NONE, a[3])
  counters[i] = sums[k]
end

-- 4. Writes. Nothing below can fail on a server that answered the above.
local function set(k, v, expiry)
  if expiry == 0 then
    redis.call('SET', k, v)
  elseif expiry > now then
    redis.call('SET', k, v, 'PXAT', string.format('%.0f', expiry - shift))
  else
    redis.call('DEL', k)
  end
end

-- append adds a row under the store's time. A clock that went back must not
-- stop the log, so the row then goes under the time of the last one.
local function append(row)
  local id = string.format('%.0f-*', now)
  if type(redis.pcall('XADD', rowskey, id, 'd', row)) == 'string' then return end
  local info = redis.call('XINFO', 'STREAM', rowskey)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then id = string.gsub(info[i + 1], '%-.*', '-*') end
  end
  redis.call('XADD', rowskey, id, 'd', row)
end

for _, k in ipairs(deletes) do redis.call('DEL', k) end
for _, p in ipairs(puts) do set(p[1], p[2], p[3]) end
for i, a in ipairs(adds) do set(a[1], a[2] .. counters[i], a[4]) end
for _, e in ipairs(unindex) do redis.call('ZREM', e[1], e[2]) end
for _, e in ipairs(index) do redis.call('ZADD', e[1], e[2], e[3]) end
for _, row in ipairs(rows) do append(row) end
for _, n in ipairs(voids) do
  local s = redis.call('GET', n)
  if not s or string.sub(s, 1, 1) ~= 'A' then redis.call('SET', n, 'V', 'PX', voidlife) end
end

local result = pack64(now) .. table.concat(counters)
redis.call('SET', noncekey, 'A' .. result, 'PX', noncelife)
return { 'A', result }
