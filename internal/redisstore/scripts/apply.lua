-- Applies one ledger.Step, or nothing. The constants in capitals that stand
-- neither here nor in the library are put in front of them.
--
-- KEYS: rows, nonce, then those of conditions, voids, counters, puts, deletes,
-- index entries to take out and to put in, fetches; the last only if they are not
-- those of the conditions once more. ARGV: the times and the number
-- of each of these, and of rows, packed; the expected versions, end to end; the
-- kinds to follow for each fetch; then, in the order of use, value and end of each
-- counter and put, member of each entry to take out, score and member of each to
-- put in, rows. A counter's value is its delta. An end is in milliseconds on the
-- server's own clock, empty for none.
--
-- First everything that could fail is checked, then everything is written, and last
-- the nonce: the reply, without its echo, is what a repeat gets.
-- Reply: 'A', time and counters: applied now; 'R', the same: applied before; 'V',
-- time: voided; {time, list}: not applied, with what fetch returns. The echo is the
-- second half of the nonce.
local shifthi, shiftlo, athi, atlo, beforehi, beforelo, expects, voids, adds, puts, deletes, unindexes, indexes, rows =
  struct.unpack('>i4I4i4I4i4I4I4I4I4I4I4I4I4I4', ARGV[1])
local shift = shifthi * TWO32 + shiftlo
local at, before = athi * TWO32 + atlo, beforehi * TWO32 + beforelo
local now = clock(shift)

-- Where the keys of each part begin, less one.
local rowskey, noncekey, expect = KEYS[1], KEYS[2], 2
local echo = string.sub(noncekey, -8)
local void = expect + expects
local add = void + voids
local put = add + adds
local delete = put + puts
local entry = delete + deletes

-- All that is looked at is read at once, as stored[i - 1] for KEYS[i]. Keys without
-- a string go to none, and nothing is concluded before absent was asked about them.
local stored = mget(KEYS, 2, add + adds)
local none = { noncekey }

-- 1. A nonce seen before.
local seen = stored[1]
if seen then
  local mark = string.sub(seen, 1, 1)
  if mark == 'V' and #seen == 1 then return 'V' .. pack64(now) .. echo end
  if mark == 'A' and #seen >= 9 then return 'R' .. string.sub(seen, 2) .. echo end
  fail('HFCORRUPT')
end

-- 2. Conditions.
local ok = math.abs(now - at) <= DRIFT and (before == 0 or now < before)
for i = 1, ok and expects or 0 do
  local v, version = stored[expect + i - 1], NONE
  if not v then
    none[#none + 1] = KEYS[expect + i]
  elseif live(v, now) then
    version = string.sub(v, 1, 8)
  end
  if version ~= string.sub(ARGV[2], i * 8 - 7, i * 8) then
    ok = false
    break
  end
end
if not ok then
  absent(none)
  local last = entry + unindexes + indexes
  return { pack64(now) .. echo, fetch(now, last < #KEYS and last or expect, ARGV[3]) }
end

-- 3. What could fail while writing, checked while nothing is written.
for i = 1, voids do
  if not stored[void + i - 1] then none[#none + 1] = KEYS[void + i] end
end

local counters = {}
if adds > 0 then
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

  local sums = {}
  for i = 1, deletes do sums[KEYS[delete + i]] = NONE end
  for i = 1, adds do
    local k, v = KEYS[add + i], stored[add + i - 1]
    local count = sums[k]
    if not count then
      count = NONE
      if not v then
        none[#none + 1] = k
      elseif live(v, now) then
        if #v ~= 24 or string.sub(v, 1, 8) ~= NONE then fail('HFCORRUPT') end
        count = string.sub(v, 17)
      end
    end
    counters[i] = sum(count, string.sub(ARGV[2 + 2 * i], 17))
    sums[k] = counters[i]
  end
end
absent(none)

for i = entry + 1, entry + unindexes + indexes do
  if KEYS[i] ~= KEYS[i - 1] then call('ZCARD', KEYS[i]) end
end

-- 4. Writes. Nothing below can fail on a server that answered the above, but for
-- the first row, which is the first of all. A clock that went back must not stop
-- the log: a row then goes under the time of the last one.
if rows > 0 then
  local id = string.format('%d%03d-*', math.floor(now / 1000), now % 1000)
  for i = #ARGV - rows + 1, #ARGV do
    if type(redis.pcall('XADD', rowskey, id, 'd', ARGV[i])) ~= 'string' then
      local info = call('XINFO', 'STREAM', rowskey)
      for at = 1, #info, 2 do
        if info[at] == 'last-generated-id' then id = string.gsub(info[at + 1], '%-.*', '-*') end
      end
      call('XADD', rowskey, id, 'd', ARGV[i])
    end
  end
end

for i = delete + 1, delete + deletes, SPAN do
  call('DEL', unpack(KEYS, i, math.min(i + SPAN - 1, delete + deletes)))
end

-- Counters and values, of which those without an end go together, as many as come
-- one behind the other. No key has both a counter and a value.
local arg, run = 3, {}
for i = 1, adds + puts do
  local k, v, ends = KEYS[add + i], ARGV[arg + 1], ARGV[arg + 2]
  arg = arg + 2
  if i <= adds then v = string.sub(v, 1, 16) .. counters[i] end
  if ends == '' then
    run[#run + 1], run[#run + 2] = k, v
  end
  if #run > 0 and (ends ~= '' or i == adds + puts or #run >= SPAN) then
    call('MSET', unpack(run))
    run = {}
  end
  if ends ~= '' then
    if ends + shift > now then
      call('SET', k, v, 'PXAT', ends)
    else
      call('DEL', k)
    end
  end
end

for i = entry + 1, entry + unindexes do
  arg = arg + 1
  call('ZREM', KEYS[i], ARGV[arg])
end
for i = entry + unindexes + 1, entry + unindexes + indexes do
  call('ZADD', KEYS[i], ARGV[arg + 1], ARGV[arg + 2])
  arg = arg + 2
end

for i = 1, voids do
  local v = stored[void + i - 1]
  if not v or string.sub(v, 1, 1) ~= 'A' then call('SET', KEYS[void + i], 'V', 'PX', VOIDLIFE) end
end

local result = 'A' .. pack64(now) .. table.concat(counters)
call('SET', noncekey, result, 'PX', NONCELIFE)
return result .. echo
