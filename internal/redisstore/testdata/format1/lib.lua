-- Shared by all scripts of this package; the Go side puts a shebang line with
-- the script's flags in front, then this, then the script itself.
--
-- A value is one string: version (8 bytes), expiry (8 bytes, milliseconds, big
-- endian, zero for none), data. Data is opaque here: it is never parsed, so no
-- digit and no bracket of it can change. Strings are compared with == alone;
-- Lua's < follows the server's locale.

local TWO32, TWO31 = 4294967296, 2147483648
local NONE = string.rep('\0', 8)

-- fail ends the script with an error reply, as a redis.call does that fails:
-- the caller sees WRONGTYPE where a key holds what we never put there. Both must
-- only happen before the first write: what a script has written stays written.
local function fail(code) error(redis.error_reply(code)) end

local nextarg, nextkey = 0, 0
local function arg() nextarg = nextarg + 1 return ARGV[nextarg] end
local function int() return tonumber(arg()) end
local function key() nextkey = nextkey + 1 return KEYS[nextkey] end

local function pack64(n)
  return struct.pack('>I4I4', math.floor(n / TWO32), n % TWO32)
end

-- clock returns the store's time in milliseconds; shift is zero outside tests.
local function clock(shift)
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000) + shift
end

-- live says whether a value with this head exists now.
local function live(head, now)
  if #head < 16 then fail('HFCORRUPT') end
  local hi, lo = struct.unpack('>I4I4', head, 9)
  local expiry = hi * TWO32 + lo
  return expiry == 0 or expiry > now
end

-- get returns a whole value, or nil if there is none.
local function get(k, now)
  local v = redis.call('GET', k)
  if v and live(v, now) then return v end
end

-- version returns the version of a value, NONE if there is no value.
local function version(k, now)
  local head = redis.call('GETRANGE', k, 0, 15)
  if head == '' and redis.call('EXISTS', k) == 0 then return NONE end
  if not live(head, now) then return NONE end
  return string.sub(head, 1, 8)
end

-- fetch answers the fetches that the rest of KEYS and ARGV name, as a flat list
-- of key and value. A value that is a list of 16-byte ids is followed into the
-- kinds asked for; those keys share its hash tag.
local function fetch(now, prefix, count)
  local out = {}
  for _ = 1, count do
    local k, follow = key(), arg()
    local v = get(k, now)
    if v then
      out[#out + 1], out[#out + 2] = k, v
      local size = #v - 16
      if follow ~= '' and size > 0 and size % 16 == 0 then
        for at = 17, #v, 16 do
          local id = string.sub(v, at, at + 15)
          for i = 1, #follow do
            local fk = prefix .. string.sub(follow, i, i) .. id
            local fv = get(fk, now)
            if fv then out[#out + 1], out[#out + 2] = fk, fv end
          end
        end
      end
    end
  end
  return out
end
