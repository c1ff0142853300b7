"""The Lua scripts that make each operation on a filter in Redis atomic.

KEYS[1] of every script is the key of the filter's header, and ARGV[1] is the expected header. All other keys are
strings. If one of them is missing or has another type, the script fails before it writes anything. Only the list of
replaced filters (layout.py), which is the last key of some scripts, may be missing.

If memory is short, or on a replica, Redis rejects a script only at its first write. The scripts use only commands and
arguments of Redis 6.2.
"""

from __future__ import annotations

import hashlib

_COMMON = r"""
local function kind(i)
  local found = redis.call('TYPE', KEYS[i]).ok
  return found, found ~= 'none' and found ~= 'string' and redis.error_reply('NOTSTRING ' .. i .. ' ' .. found)
end

local function absent(first, last)
  for i = first, last do
    local found, wrong = kind(i)
    if wrong then return wrong end
    if found == 'none' then return redis.error_reply('MISSING ' .. i) end
  end
end

-- check the header and keys 2 to last; a filter of a different shape may have fewer keys, so the header comes first
local function unusable(last)
  local wrong = absent(1, 1)
  if wrong then return wrong end
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('ANOTHER 1') end
  return absent(2, last or #KEYS)
end

-- let keys 1 to last expire together in ttl milliseconds, or never if ttl < 0
local function expire(last, ttl)
  local now = redis.call('TIME')
  local deadline = now[1] * 1000 + math.floor(now[2] / 1000) + ttl
  for i = 1, last do
    if ttl < 0 then redis.call('PERSIST', KEYS[i]) else redis.call('PEXPIREAT', KEYS[i], deadline) end
  end
end
"""


class Script:
    """A script, and the SHA-1 that identifies it in Redis."""

    def __init__(self, body: str, check: str = "return unusable() or main()", *, before: str = "") -> None:
        self.body: bytes = f"{_COMMON}{before}\nlocal function main()\n{body}\nend\n{check}".encode()
        self.sha: str = hashlib.sha1(self.body, usedforsecurity=False).hexdigest()


# ARGV[2]: for each bit, key by key, the index in KEYS and the offset, two u32 LE; ARGV[3]: k. Returns one byte for each
# key: 1 if it is new.
ADD = Script(r"""
local probes, k, mask, at, i, offset = ARGV[2], tonumber(ARGV[3]), {}, 1
for item = 1, #probes / (8 * k) do
  local new = 0
  for _ = 1, k do
    i, offset, at = struct.unpack('<I4I4', probes, at)
    -- set bits are not written again, so that nothing goes to replicas and the append-only file
    if redis.call('GETBIT', KEYS[i], offset) == 0 then
      redis.call('SETBIT', KEYS[i], offset, 1)
      new = 1
    end
  end
  mask[item] = string.char(new)
end
return table.concat(mask)
""")

# Arguments as for ADD. Returns one byte for each key: 1 if it is contained.
CONTAINS = Script(r"""
local probes, k, mask, i, offset = ARGV[2], tonumber(ARGV[3]), {}
for item = 1, #probes / (8 * k) do
  local contained = 1
  for probe = (item - 1) * k, item * k - 1 do
    i, offset = struct.unpack('<I4I4', probes, probe * 8 + 1)
    if redis.call('GETBIT', KEYS[i], offset) == 0 then
      contained = 0
      break
    end
  end
  mask[item] = string.char(contained)
end
return table.concat(mask)
""")

# The check of scripts whose last key is the list of replaced filters.
_WITHOUT_LIST = "return unusable(#KEYS - 1) or main()"

# KEYS: header, n shards, optionally n staged shards, the list of replaced filters; ARGV[2]: n, [3]: time to live in ms
# or -1, [4]: the last offset in a shard. Returns the existing header, or nil if the filter was created.
CREATE = Script(
    r"""
local n, ttl = tonumber(ARGV[2]), tonumber(ARGV[3])
for i = 1, #KEYS - 1 do
  local found, wrong = kind(i)
  if wrong then return wrong end
  if i == 1 and found == 'string' then return redis.call('GET', KEYS[1]) end
  if i > n + 1 and found == 'none' then return redis.error_reply('MISSING ' .. i) end
end
redis.call('GETBIT', KEYS[2], ARGV[4])  -- fails if the server does not allow strings of that length
redis.call('SET', KEYS[1], ARGV[1])
for i = 2, n + 1 do
  if #KEYS > n + 2 then redis.call('RENAME', KEYS[i + n], KEYS[i]) else redis.call('SET', KEYS[i], '\0') end
end
expire(n + 1, ttl)
redis.call('UNLINK', KEYS[#KEYS])
return false
""",
    check="return main()",
)

# KEYS: header, n shards, n source shards, optionally the source's header; ARGV[2]: n, [3]: the expected value of the
# source's header.
UNION = Script(r"""
local n, ttl, last = tonumber(ARGV[2]), redis.call('PTTL', KEYS[1]), #KEYS
if ARGV[3] and redis.call('GET', KEYS[last]) ~= ARGV[3] then return redis.error_reply('ANOTHER ' .. last) end
for i = 2, n + 1 do redis.call('BITOP', 'OR', KEYS[i], KEYS[i], KEYS[i + n]) end
expire(n + 1, ttl)  -- BITOP removes the shards' time to live
""")

# KEYS: header, m shards, n staged shards, n shards of the new filter, the list of replaced filters. ARGV:
# - 2 and 3: m and n
# - 4: the new header
# - 5: the old filter for the list, or an empty string
# - 6: largest size of the list in bytes
# - 7: the last offset in a new shard
#
# The filter keeps its time to live.
REPLACE = Script(
    r"""
local m, n, ttl, list = tonumber(ARGV[2]), tonumber(ARGV[3]), redis.call('PTTL', KEYS[1]), KEYS[#KEYS]
for i = m + n + 2, #KEYS do
  local _, wrong = kind(i)
  if wrong then return wrong end
end
redis.call('GETBIT', KEYS[m + n + 2], ARGV[7])  -- fails if the server does not allow strings of that length
redis.call('SET', KEYS[1], ARGV[4])
local replaced = (redis.call('GET', list) or '') .. ARGV[5]

for i = 2, m + 1 do redis.call('UNLINK', KEYS[i]) end

for i = m + 2, m + n + 1 do redis.call('RENAME', KEYS[i], KEYS[i + n]) end

if #replaced > 0 then redis.call('SET', list, replaced:sub(-tonumber(ARGV[6]))) end

-- the keys of the new filter
for i = m + 2, m + n + 1 do KEYS[i - m] = KEYS[i + n] end

KEYS[n + 2] = list
expire(n + 2, ttl)
""",
    check="return unusable(1 + tonumber(ARGV[2]) + tonumber(ARGV[3])) or main()",
)

# KEYS: header, the list of replaced filters. Returns both values. A missing list is an empty string.
REPLACED = Script(
    "return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]) or ''}", check="return absent(1, 1) or main()"
)

CLEAR = Script("for i = 2, #KEYS do redis.call('SET', KEYS[i], '\\0', 'KEEPTTL') end")

DELETE = Script("for i = 1, #KEYS do redis.call('UNLINK', KEYS[i]) end", check=_WITHOUT_LIST)

EXPIRE = Script("expire(#KEYS, tonumber(ARGV[2]))", check=_WITHOUT_LIST)

TTL = Script("return redis.call('PTTL', KEYS[1])")

READ = Script("return redis.call('GETRANGE', KEYS[2], ARGV[2], ARGV[3])")

# ARGV[2]: ranges of bits, each as index in KEYS, first bit and last bit, three u32 LE. Returns the number of set bits
# of each range.
COUNT = Script(r"""
local counts, i, first, last = {}
for at = 1, #ARGV[2], 12 do
  i, first, last = struct.unpack('<I4I4I4', ARGV[2], at)
  local low, high = math.floor(first / 8), math.floor(last / 8)
  local count = redis.call('BITCOUNT', KEYS[i], low, high)
  -- subtract the set bits outside the range in its first and last byte (Redis numbers bits from the other end)
  for bit = low * 8, first - 1 do count = count - redis.call('GETBIT', KEYS[i], low * 16 + 7 - bit) end
  for bit = last + 1, high * 8 + 7 do count = count - redis.call('GETBIT', KEYS[i], high * 16 + 7 - bit) end
  counts[#counts + 1] = count
end
return counts
""")

# KEYS: the staging key to write to; ARGV: offset in bytes, bytes, time to live in ms.
STAGE = Script(
    r"""
redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
""",
    check="main()",
)
