"""The Lua scripts of a scalable filter in Redis. The rules in scripts.py apply to these scripts too.

KEYS[1] is the key of the header and KEYS[2] the key of the state (see serieslayout.py). ARGV[1] is the expected header
and ARGV[2] the number of slices that the caller knows.

If that number is right, a script runs and returns it along with its result. Otherwise it does nothing and returns only
the right number, and the caller runs it again with the keys of all slices.
"""

from __future__ import annotations

from spvfilter.bloom.redis.scripts import Script

_COMMON = r"""
local state, n

-- read the state; return an error, or the number of slices if the caller does not know it
local function outdated()
  local wrong = absent(1, 2)
  if wrong then return wrong end
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('ANOTHER 1') end
  state = redis.call('GET', KEYS[2])
  n = #state >= 16 and struct.unpack('<I8', state) or 0
  if n < 1 or n > 64 or #state ~= 8 + 8 * n then return redis.error_reply('DAMAGED 2') end
  if n ~= tonumber(ARGV[2]) then return {n} end
end

-- return the number of set bits of the last slice
local function set_bits()
  return (struct.unpack('<I8', state, 8 * n + 1))
end

-- return the number of hash functions of each slice, from ARGV[4], u32 LE
local function functions()
  local ks = {}
  for s = 1, n do ks[s] = struct.unpack('<I4', ARGV[4], 4 * s - 3) end
  return ks
end

-- return whether a slice has all bits of a key; the k probes of the key in ARGV[3] start at byte `at`
local function has(at, k)
  local i, offset
  for probe = 0, k - 1 do
    i, offset = struct.unpack('<I4I4', ARGV[3], at + 8 * probe)
    if redis.call('GETBIT', KEYS[i], offset) == 0 then return false end
  end
  return true
end

-- return whether a slice, tried from the last one, contains the key whose probes start at byte `at` of ARGV[3]; and the
-- byte at which the probes of the next key start
local function contained(at, ks)
  local found = false
  for s = n, 1, -1 do
    found = found or has(at, ks[s])
    at = at + 8 * ks[s]
  end
  return found, at
end
"""
_CHECK = "return outdated() or absent(3, #KEYS) or {n, main()}"


def _script(body: str, check: str = _CHECK) -> Script:
    return Script(body, check, before=_COMMON)


# ARGV:
# - 3: for each bit, key by key, the last slice first, the index in KEYS and the offset, two u32 LE
# - 4: k of each slice, u32 LE
# - 5: the number of set bits at which the last slice is full
#
# Returns one byte for each key, 1 if it is new. Returns fewer bytes if the slice is full and the next key is new.
ADD = _script(r"""
local ks, limit, mask, at, item, i, offset = functions(), tonumber(ARGV[5]), {}, 1, 0
local count = set_bits()
local before = count
while at <= #ARGV[3] do
  local found, after = contained(at, ks)
  if not found then
    if count >= limit then break end
    for probe = 0, ks[n] - 1 do
      i, offset = struct.unpack('<I4I4', ARGV[3], at + 8 * probe)
      if redis.call('SETBIT', KEYS[i], offset, 1) == 0 then count = count + 1 end
    end
  end
  item = item + 1
  mask[item] = string.char(found and 0 or 1)
  at = after
end
if count ~= before then redis.call('SETRANGE', KEYS[2], 8 * n, struct.pack('<I8', count)) end
return table.concat(mask)
""")

# ARGV[3] and [4] as for ADD. Returns one byte for each key: 1 if it is contained.
CONTAINS = _script(r"""
local ks, mask, at, item, found = functions(), {}, 1, 0
while at <= #ARGV[3] do
  found, at = contained(at, ks)
  item = item + 1
  mask[item] = string.char(found and 1 or 0)
end
return table.concat(mask)
""")

# KEYS: header, state, the shards of all slices, the shards of the next slice. ARGV:
# - 3: the number of shards of all slices
# - 4: the number of set bits at which the last slice is full
# - 5: the last offset in a shard of the next slice
#
# Returns 1 if the slice was added, 0 if the last slice is not full.
GROW = _script(
    r"""
local there = tonumber(ARGV[3])
local ttl = redis.call('PTTL', KEYS[1])
redis.call('GETBIT', KEYS[there + 3], ARGV[5])  -- fails if the server does not allow strings of that length
for i = there + 3, #KEYS do redis.call('SET', KEYS[i], '\0') end
redis.call('SET', KEYS[2], struct.pack('<I8', n + 1) .. state:sub(9) .. string.rep('\0', 8))
expire(#KEYS, ttl)
return {n + 1, 1}
""",
    check=r"""
local wrong = outdated() or absent(3, tonumber(ARGV[3]) + 2)
if wrong then return wrong end
for i = tonumber(ARGV[3]) + 3, #KEYS do
  local _, other = kind(i)
  if other then return other end
end
if set_bits() < tonumber(ARGV[4]) then return {n, 0} end
return main()
""",
)

# KEYS: header, state, the shards of all slices, optionally as many staged shards. ARGV:
# - 2: the state
# - 3: the number of shards
# - 4: time to live in ms or -1
# - 5: the last offset in a shard
#
# Returns the existing header, or nil if the filter was created.
CREATE = Script(
    r"""
local shards, ttl = tonumber(ARGV[3]), tonumber(ARGV[4])
for i = 1, #KEYS do
  local found, wrong = kind(i)
  if wrong then return wrong end
  if i == 1 and found == 'string' then return redis.call('GET', KEYS[1]) end
  if i > shards + 2 and found == 'none' then return redis.error_reply('MISSING ' .. i) end
end
redis.call('GETBIT', KEYS[3], ARGV[5])  -- fails if the server does not allow strings of that length
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
for i = 3, shards + 2 do
  if #KEYS > shards + 2 then redis.call('RENAME', KEYS[i + shards], KEYS[i]) else redis.call('SET', KEYS[i], '\0') end
end
expire(shards + 2, ttl)
return false
""",
    check="return main()",
)

STATE = _script("return state")

READ = _script("return redis.call('GETRANGE', KEYS[3], ARGV[3], ARGV[4])")

TTL = _script("return redis.call('PTTL', KEYS[1])")

CLEAR = _script(r"""
for i = 3, #KEYS do redis.call('SET', KEYS[i], '\0', 'KEEPTTL') end
redis.call('SETRANGE', KEYS[2], 8, string.rep('\0', 8 * n))
return 0
""")

DELETE = _script("for i = 1, #KEYS do redis.call('UNLINK', KEYS[i]) end return 0")

EXPIRE = _script("expire(#KEYS, tonumber(ARGV[3])) return 0")
