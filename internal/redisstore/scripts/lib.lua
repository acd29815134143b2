-- Shared by all scripts of this package; the Go side puts a shebang line with
-- the script's flags and some constants in front, then this, then the script
-- itself.
--
-- A value is one string: version (8 bytes), expiry (8 bytes, milliseconds, big
-- endian, zero for none), data. Data is opaque here: it is never parsed, so no
-- digit and no bracket of it can change. Strings are compared with == alone;
-- Lua's < follows the server's locale.
--
-- An answer carries its call's echo: a string at its end, a list at the end of the
-- first thing in it. The protocol has no other sign of whose an answer is, and on a
-- connection on which one came too many or too few, each caller would get the answer
-- of another.
--
-- What costs here is the number of redis.calls, then the bytes of the strings
-- that Lua is given, each of which it hashes, then the functions made anew in
-- each run: those needed seldom stand where they are needed.

local KEYS, ARGV, call = KEYS, ARGV, redis.call
local TWO32, TWO31 = 4294967296, 2147483648
local NONE = '\0\0\0\0\0\0\0\0'

-- SPAN bounds how many words one command is given: Lua's stack has an end.
local SPAN = 1000

-- fail ends the script with an error reply, as a redis.call does that fails:
-- the caller sees WRONGTYPE where a key holds what we never put there. Both must
-- only happen before the first write: what a script has written stays written.
local function fail(code) error(redis.error_reply(code)) end

local function pack64(n)
  return struct.pack('>I4I4', math.floor(n / TWO32), n % TWO32)
end

-- clock returns the store's time in milliseconds; shift is zero outside tests.
local function clock(shift)
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000) + shift
end

-- live says whether a value exists now.
local function live(value, now)
  if #value < 16 then fail('HFCORRUPT') end
  if string.sub(value, 9, 16) == NONE then return true end
  local hi, lo = struct.unpack('>I4I4', value, 9)
  return hi * TWO32 + lo > now
end

-- mget returns what is under a part of a list of keys: false where there is no
-- string, which is not yet to say that there is nothing (absent).
local function mget(keys, from, to)
  if to - from < SPAN then return call('MGET', unpack(keys, from, to)) end
  local all = {}
  for at = from, to, SPAN do
    for _, v in ipairs(call('MGET', unpack(keys, at, math.min(at + SPAN - 1, to)))) do all[#all + 1] = v end
  end
  return all
end

-- absent fails unless there is nothing under any of the keys.
local function absent(keys)
  for at = 1, #keys, SPAN do
    if call('EXISTS', unpack(keys, at, math.min(at + SPAN - 1, #keys))) ~= 0 then fail('HFCORRUPT') end
  end
end

-- fetch answers fetches, whose keys are KEYS behind one of them. Follows says, for
-- each, the number of kinds to follow it into, and which. The reply is a flat list
-- of key and value. A value that is a list of 16-byte ids is followed into the
-- kinds asked for; those keys share its hash tag, all there is in front of '#' in
-- the key of the rows.
local function fetch(now, behind, follows)
  local out, more, none = {}, {}, {}

  -- found puts a value into the list if it exists now, and says so.
  local function found(k, v)
    if not v then
      none[#none + 1] = k
      return false
    end
    if not live(v, now) then return false end
    out[#out + 1], out[#out + 2] = k, v
    return true
  end

  local fetches, pos = 0, 1
  while pos <= #follows do
    fetches, pos = fetches + 1, pos + 1 + string.byte(follows, pos)
  end
  if fetches == 0 then return out end
  local prefix = string.match(KEYS[1], '^[^#]*') .. ':'
  pos = 1
  for i, v in ipairs(mget(KEYS, behind + 1, behind + fetches)) do
    local kinds = string.byte(follows, pos)
    if found(KEYS[behind + i], v) and kinds > 0 and #v > 16 and #v % 16 == 0 then
      for at = 17, #v, 16 do
        local id = string.sub(v, at, at + 15)
        for at = pos + 1, pos + kinds do more[#more + 1] = prefix .. string.sub(follows, at, at) .. id end
      end
    end
    pos = pos + 1 + kinds
  end
  if #more > 0 then
    for i, v in ipairs(mget(more, 1, #more)) do found(more[i], v) end
  end
  absent(none)
  return out
end
