"""The image of a watch table: its entries, their index and its coins, as bytes that a table can search in place.

This is the readable reference; the C twin is csrc/watch/image.h, which describes the bytes.
"""

from __future__ import annotations

import operator
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence

from spvfilter.errors import FormatError
from spvfilter.kernel.pure.packed import MAX_ENTRY
from spvfilter.kernel.pure.undo import compressed_key
from spvfilter.kernel.values import MAX_PREFIX, NO_ENTRY, NO_VALUE, EntryKind, ScriptType, WatchedCoin
from spvfilter.protocol import OUTPOINT_SIZE

KEY_SIZE = 64
"""Size of the key of the hashes, in bytes."""
_MAGIC, _ORDER, _VERSION = b"SPVTABLE", 0x01020304, 1
_HEADER = struct.Struct("=8sIIQQQQQIIIIQ6I24x64s")
_HEADER_SIZE = 192
_ALIGNED = 64  # Sections start at multiples of this size.
_GROUP, _PASSED = 16, 15  # Words of a group, and the position of its last word.
_LIMIT = 13  # An index grows when it contains this many numbers per group.
_REACH = 256  # Number of groups after which a lookup ends.
_COIN = struct.Struct("<36sIqI")
_NO_SCRIPT = 0xFFFFFFFF
_MASK = (1 << 64) - 1
_DAMAGED = EntryKind.OUTPOINT, b""  # An entry whose record is damaged. No lookup finds it.

Entry = tuple[EntryKind, bytes]


class Image:
    """The entries of an image. Its contents may be wrong, but no lookup reads other memory or runs forever."""

    def __init__(self, raw: bytes | memoryview) -> None:
        self._raw = raw = memoryview(raw).cast("B")
        if len(raw) < _HEADER_SIZE:
            raise FormatError(f"truncated: expected {_HEADER_SIZE} bytes, {len(raw)} left", offset=0, field="image")
        magic, order, version, size, records, coins, groups, full_groups, count, coin_count, full_count, _, *rest = (
            _HEADER.unpack_from(raw)
        )
        prefix_sizes, *of_kind, key = rest
        self.prefix_sizes: int = prefix_sizes
        """The sizes of data prefixes: bit n is 1 if a prefix is n + 1 bytes long."""
        self.of_kind: list[int] = of_kind
        """Number of entries of each kind."""
        self.count: int = count
        """Number of entries."""
        _check(magic == _MAGIC, 0, "magic", "not the image of a watch table")
        _check(order == _ORDER, 8, "byte order", "the image was made on a machine with a different byte order")
        _check(
            version == _VERSION, 12, "version", f"unsupported version {version} (only version {_VERSION} is supported)"
        )
        _check(size == len(raw), 16, "size", f"must be {len(raw)}, the number of bytes in the image, not {size}")
        most = MAX_ENTRY + 1
        _check(count <= most, 56, "entries", f"must be at most {most}, not {count}")
        _check(
            full_count <= count, 64, "full keys", f"must be at most {count}, the number of entries, not {full_count}"
        )
        _check(not groups & (groups - 1), 40, "groups", f"must be a power of two, not {groups}")
        _check(not full_groups & (full_groups - 1), 48, "groups", f"must be a power of two, not {full_groups}")
        *starts, end = _layout(groups, full_groups, count, records, coins)
        _check(end == len(raw), 16, "size", "the sections do not fill the image")
        self._keys = struct.unpack("=8Q", key)
        self._index, self._full_keys = (starts[0], groups), (starts[1], full_groups)
        self._offsets, self._records = starts[2], raw[starts[3] : starts[3] + records]
        self._coins = starts[4], starts[4] + coins, coin_count
        self._check_order()

    def _check_order(self) -> None:
        """Raise FormatError unless the records follow each other, so that a small file cannot contain large entries."""
        at = [*map(self._offset, range(self.count + 1))]
        _check(
            all(map(operator.lt, at, at[1:])), self._offsets, "offset", "the records of the entries are not in order"
        )

    def _offset(self, number: int) -> int:
        """Return the offset of a record. The offset after the last record is the size of all records."""
        place = self._offsets + 8 * number
        return _number(self._raw[place : place + 8]) if number < self.count else len(self._records)

    def entry(self, number: int) -> Entry:
        """Return an entry, or an outpoint without bytes if the entry's record is damaged."""
        if number >= self.count:
            return _DAMAGED
        at, end = self._offset(number), self._offset(number + 1)
        if not at < end <= len(self._records):
            return _DAMAGED
        head, at = self._records[at], at + 1
        kind, size = head & 3, head >> 2
        if size >= 62:
            if end - at < 4:
                return _DAMAGED
            kind += 4 if size == 62 else 0
            size, at = int.from_bytes(self._records[at : at + 4], "little"), at + 4
        value = bytes(self._records[at:end])
        if size != len(value) or kind >= len(EntryKind) or not _is_sound(EntryKind(kind), value):
            return _DAMAGED
        return EntryKind(kind), value

    def find(self, kind: EntryKind, value: bytes) -> int:
        """Return the number of an entry, or NO_ENTRY. Outpoints are not in the index."""
        if not self._index[1]:
            return NO_ENTRY
        hashed = keyed_hash(self._keys, kind & 3, value)
        return next(
            (number for number in self._probe(self._index, hashed) if self.entry(number) == (kind, value)), NO_ENTRY
        )

    def find_full_key(self, key: bytes) -> bytes | None:
        """Return the uncompressed form of a key that an entry contains, or None."""
        if not self._full_keys[1]:
            return None
        hashed = keyed_hash(self._keys, EntryKind.MULTISIG_KEY, key)
        for number in self._probe(self._full_keys, hashed):
            full = full_key_in(*self.entry(number))
            if full is not None and full[64] & 1 == key[0] & 1 and full[1:33] == key[1:]:
                return full
        return None

    def _probe(self, index: tuple[int, int], hashed: int) -> Iterator[int]:
        """Yield the numbers in an index whose entries may have the hash `hashed`."""
        start, groups = index
        group = hashed >> 16 & groups - 1
        for _ in range(_REACH):
            tags = struct.unpack_from("=16H", self._raw, start + 32 * group)
            for slot in range(_PASSED):
                if tags[slot] == hashed & 0xFFFF | 1:
                    at = start + 32 * groups + 4 * (group * _GROUP + slot)
                    yield _number(self._raw[at : at + 4])
            if not tags[_PASSED] >> (hashed >> 60) & 1:
                return
            group = group + 1 & groups - 1

    def coins(self) -> Iterator[tuple[bytes, WatchedCoin]]:
        """Yield the coins. Raises FormatError for damaged coins."""
        at, end, count = self._coins
        for _ in range(count):
            left = end - at
            _check(left >= _COIN.size, at, "coin", f"truncated: expected {_COIN.size} bytes, {left} left")
            outpoint, entry, value, size = _COIN.unpack_from(self._raw, at)
            sound = entry < self.count and value >= NO_VALUE
            _check(sound, at, "coin", "the entry or the value of the coin is out of range")
            at, script = at + _COIN.size, None
            if size != _NO_SCRIPT:
                _check(size <= end - at, at, "script", f"truncated: expected {size} bytes, {end - at} left")
                script, at = bytes(self._raw[at : at + size]), at + size
            yield outpoint, WatchedCoin(entry, value, script)
        _check(at == end, at, "coin", f"must be the last, but {end - at} bytes follow")


def _check(is_sound: bool, offset: int, field: str, message: str) -> None:
    """Raise FormatError unless `is_sound`."""
    if not is_sound:
        raise FormatError(message, offset=offset, field=field)


def _number(raw: memoryview) -> int:
    return int.from_bytes(raw, sys.byteorder)


def _layout(groups: int, full_groups: int, count: int, records: int, coins: int) -> list[int]:
    """Return the offsets of the sections, and the size of the image."""
    places = [_HEADER_SIZE]
    for size in (96 * groups, 96 * full_groups, 8 * count, records, coins):
        places.append(places[-1] + (-(-size // _ALIGNED) * _ALIGNED))
    return places


def keyed_hash(key: Sequence[int], domain: int, value: bytes) -> int:
    """Return the keyed hash of an entry: multiply and mix (csrc/watch/keyhash.h)."""
    seed = key[0] ^ (len(value) << 2 | domain)
    while len(value) > 40:
        seed = (
            _mix(_le64(value) ^ key[1] ^ seed, _le64(value, 8) ^ key[2])
            + _mix(_le64(value, 16) ^ key[3], seed ^ key[4])
        ) & _MASK
        value = value[24:]
    size = len(value)
    if size >= 17:
        sums = _mix(_le64(value) ^ key[1], _le64(value, 8) ^ key[2])
        sums += _mix(_le64(value, size - 16) ^ key[3], _le64(value, size - 8) ^ key[4])
        return _mix(sums & _MASK ^ seed, _le64(value, (size - 8) // 2) ^ key[5])
    low = high = 0
    if size >= 8:
        low, high = _le64(value), _le64(value, size - 8)
    elif size >= 4:
        low, high = (int.from_bytes(part, "little") for part in (value[:4], value[-4:]))
    elif size:
        low = value[0] << 16 | value[size // 2] << 8 | value[-1]
    return _mix(_mix(low ^ key[1], high ^ key[2]) ^ seed, key[5])


def _le64(value: bytes, at: int = 0) -> int:
    return int.from_bytes(value[at : at + 8], "little")


def _mix(a: int, b: int) -> int:
    """Return the two halves of the product of two 64-bit numbers, XORed."""
    product = a * b
    return product & _MASK ^ product >> 64


def full_key_in(kind: EntryKind, value: bytes) -> bytes | None:
    """Return the uncompressed key (65 bytes, 04 first) in a P2PK script or a data entry, or None if there is none."""
    if kind == EntryKind.SCRIPT and len(value) == 67 and value[:2] == b"\x41\x04" and value[-1] == 0xAC:
        return value[1:66]
    return value if kind == EntryKind.DATA and len(value) == 65 and value[0] == 4 else None


class _Index:
    """An index that is being written."""

    def __init__(self, count: int) -> None:
        self.groups = 0 if not count else 1
        while self.groups and self.groups * _LIMIT <= count:
            self.groups *= 2
        self._tags = [0] * (self.groups * _GROUP)
        self._numbers = [0] * (self.groups * _GROUP)

    def add(self, hashed: int, number: int) -> None:
        """Add a number. Raises FormatError if lookups would not reach it."""
        group = hashed >> 16 & self.groups - 1
        passed = []
        while self._tags[group * _GROUP + _PASSED - 1]:
            passed.append(group)
            if len(passed) == _REACH:
                why = "too many entries have hashes that collide under this key"
                raise FormatError(why, offset=number, field="entry")
            group = group + 1 & self.groups - 1
        for full in passed:
            self._tags[full * _GROUP + _PASSED] |= 1 << (hashed >> 60)
        slot = self._tags.index(0, group * _GROUP)
        self._tags[slot], self._numbers[slot] = hashed & 0xFFFF | 1, number

    def __bytes__(self) -> bytes:
        size = len(self._tags)
        return struct.pack(f"={size}H{size}I", *self._tags, *self._numbers)


def image_of(entries: Sequence[Entry], coins: Iterable[tuple[bytes, WatchedCoin]], key: bytes) -> bytes:
    """Return the image of a table.

    Raises FormatError for an entry that no valid table contains. Only a table over a damaged image can contain one.
    """
    keys = struct.unpack("=8Q", key)
    of_kind, prefix_sizes, odd_scripts, full_count = [0] * len(EntryKind), 0, 0, 0
    index = _Index(sum(kind != EntryKind.OUTPOINT for kind, _ in entries))
    full_keys = _Index(sum(full_key_in(*entry) is not None for entry in entries))
    offsets, records, known, coins = [0], bytearray(), set[Entry](), [*coins]
    watched = {outpoint: coin.entry for outpoint, coin in coins}
    for number, (kind, value) in enumerate(entries):
        _check(_is_sound(kind, value), number, "entry", "a watch list cannot contain this entry")
        records += record(kind, value)
        offsets.append(len(records))
        of_kind[kind] += 1
        if kind == EntryKind.OUTPOINT:
            why = "no coin has this outpoint, or another entry has it"
            _check(watched.get(value) == number, number, "entry", why)
            continue
        _check((kind, value) not in known, number, "entry", "the same entry occurs twice")
        known.add((kind, value))
        index.add(keyed_hash(keys, kind & 3, value), number)
        prefix_sizes |= 1 << (len(value) - 1) if kind == EntryKind.DATA_PREFIX else 0
        odd_scripts += kind == EntryKind.SCRIPT and not 17 <= len(value) <= 40
        full = full_key_in(kind, value)
        if full is not None and (short := compressed_key(full)) is not None:
            full_keys.add(keyed_hash(keys, EntryKind.MULTISIG_KEY, short), number)
            full_count += 1
    packed = list[bytes]()
    for number, (outpoint, coin) in enumerate(coins):
        _check(coin.entry < len(entries), number, "coin", "it belongs to an entry that the table does not have")
        packed.append(_packed_coin(outpoint, coin))
    ends = offsets[:-1]
    sections = [bytes(index), bytes(full_keys), struct.pack(f"={len(ends)}Q", *ends), bytes(records), b"".join(packed)]
    size = _layout(index.groups, full_keys.groups, len(ends), len(records), len(sections[-1]))[-1]
    header = _HEADER.pack(
        *(_MAGIC, _ORDER, _VERSION, size, len(records), len(sections[-1]), index.groups, full_keys.groups),
        *(len(ends), len(packed), full_count, odd_scripts, prefix_sizes, *of_kind, key),
    )
    return header + b"".join(section + bytes(-len(section) % _ALIGNED) for section in sections)


def image_size(entries: Iterable[Entry], coins: Iterable[tuple[bytes, WatchedCoin]]) -> int:
    """Return the size of a table's image in bytes."""
    indexed = full_count = count = records = 0
    for kind, value in entries:
        count += 1
        records += len(record(kind, value))
        indexed += kind != EntryKind.OUTPOINT
        full_count += full_key_in(kind, value) is not None
    coins_size = sum(len(_packed_coin(*each)) for each in coins)
    return _layout(_Index(indexed).groups, _Index(full_count).groups, count, records, coins_size)[-1]


def record(kind: EntryKind, value: bytes) -> bytes:
    """Return the record of an entry (csrc/watch/table.h)."""
    if kind < 4 and len(value) < 62:
        return bytes((len(value) << 2 | kind,)) + value
    return bytes(((62 if kind >= 4 else 63) << 2 | kind & 3,)) + len(value).to_bytes(4, "little") + value


def _packed_coin(outpoint: bytes, coin: WatchedCoin) -> bytes:
    size = _NO_SCRIPT if coin.script is None else len(coin.script)
    return _COIN.pack(outpoint, coin.entry, coin.value, size) + (coin.script or b"")


def _is_sound(kind: EntryKind, value: bytes) -> bool:
    match kind:
        case EntryKind.OUTPOINT:
            return len(value) == OUTPOINT_SIZE
        case EntryKind.DATA_PREFIX:
            return 1 <= len(value) <= MAX_PREFIX
        case EntryKind.SCRIPT_TYPE:
            return len(value) == 1 and value[0] < len(ScriptType)
    return True
