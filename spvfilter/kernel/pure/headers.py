"""Runs of block headers: hashes, links, the rules between two landmarks, and an index by hash; chains of filter
headers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import groupby
from struct import Struct

from spvfilter.errors import FormatError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure.arguments import snapshot, snapshots, whole
from spvfilter.protocol import HEADER_SIZE

_MEDIAN_SPAN = 11  # headers, Core chain.h nMedianTimeSpan
_MOST_INDEXED = 1 << 16  # headers in one index
_KEY, _ENTRY = 4, 6  # bytes of a hash that an index keeps, and of a header's part in it
_FIELDS = Struct("<i64xII4x")  # version, time, bits


def header_hashes(headers: bytes, /) -> bytes:
    """The block hashes, 32 bytes each, of headers of 80 bytes each.

    Raises FormatError if the last header is truncated.
    """
    headers = _whole_headers(headers)
    return b"".join([sha256d(headers[at : at + HEADER_SIZE]) for at in range(0, len(headers), HEADER_SIZE)])


def linked_headers(headers: bytes, hashes: bytes, /) -> int:
    """How many headers, 80 bytes each, follow each other from the first one on; `hashes` are theirs, 32 bytes each.

    Raises FormatError if the last header is truncated, ParameterError unless there is a hash for each header.
    """
    headers, hashes = _with_hashes(headers, hashes)
    count = len(headers) // HEADER_SIZE
    links = (
        number for number in range(1, count) if _previous(headers, number) != hashes[32 * number - 32 : 32 * number]
    )
    return next(links, count)


def header_bits(headers: bytes, /) -> list[tuple[int, int]]:
    """The compact bits of headers, 80 bytes each, in order: bits, and the number of consecutive headers that have them.

    Raises FormatError if the last header is truncated.
    """
    every = (bits for _, _, bits in _FIELDS.iter_unpack(_whole_headers(headers)))
    return [(bits, sum(1 for _ in same)) for bits, same in groupby(every)]


def judge_headers(
    headers: bytes,
    hashes: bytes,
    times: bytes,
    usual: bytes,
    late: bytes,
    late_by: int,
    least_version: int,
    latest: int,
    /,
) -> tuple[int, int]:
    """How many headers, 80 bytes each, obey the rules from the first one on, and how many of these are late.

    A header is late if its time is more than `late_by` seconds above the one before it. Its bits must be those of
    `late`, of others those of `usual`: each is bits u32 LE and the target 32 bytes LE, which the hash must not exceed.
    The time must be above the median of the eleven times before it and at most `latest`, the version at least
    `least_version`. `hashes` are those of the headers, 32 bytes each; `times` are those of up to eleven headers before
    them, u32 LE, oldest first. Links are not checked.

    Raises FormatError if the last header is truncated, ParameterError for other sizes and numbers that no header could
    have.
    """
    headers, hashes = _with_hashes(headers, hashes)
    before = snapshot(times)
    if len(before) % 4 or not 1 <= len(before) // 4 <= _MEDIAN_SPAN:
        raise ParameterError(f"1 to {_MEDIAN_SPAN} times of 4 bytes each expected, not {len(before)} bytes")
    expected = [_difficulty(each) for each in (usual, late)]
    late_by = whole(late_by, 0, 1 << 32, "a difference of times is from 0 to 2^32")
    least_version = whole(least_version, -(1 << 31), (1 << 31) - 1, "a version is a signed number of 32 bits")
    latest = whole(latest, -1, 1 << 32, "the latest time is from -1 to 2^32")
    window = [int.from_bytes(before[at : at + 4], "little") for at in range(0, len(before), 4)]
    ordered, last, late_ones = sorted(window), window[-1], 0
    for number, (version, time, bits) in enumerate(_FIELDS.iter_unpack(headers)):
        is_late = time > last + late_by
        wanted, target = expected[is_late]
        block_hash = int.from_bytes(hashes[32 * number : 32 * number + 32], "little")
        is_timely = ordered[len(ordered) // 2] < time <= latest
        if bits != wanted or block_hash > target or not is_timely or version < least_version:
            return number, late_ones
        late_ones += is_late
        last = time
        window.append(time)
        insort(ordered, time)
        if len(window) > _MEDIAN_SPAN:
            del ordered[bisect_left(ordered, window.pop(0))]
    return len(headers) // HEADER_SIZE, late_ones


def index_headers(headers: bytes, last: bytes, /) -> bytes:
    """An index by hash of up to 65,536 headers, 80 bytes each, that follow each other; `last` is the hash of the last
    one.

    It has the first four bytes of each hash, in ascending order, and then, in the same order, the numbers of the
    headers, u16 LE. Those with equal bytes are in the order of their numbers. Raises FormatError if the last header is
    truncated, ParameterError for none, for too many and for a hash of another length.
    """
    headers, last = _whole_headers(headers), _hash(last)
    count = len(headers) // HEADER_SIZE
    if not 1 <= count <= _MOST_INDEXED:
        raise ParameterError(f"1 to {_MOST_INDEXED} headers are indexed at once, not {count}")
    return _index_of([*(_previous(headers, number)[:_KEY] for number in range(1, count)), last[:_KEY]])


def join_indexes(indexes: Iterable[bytes], /) -> bytes:
    """The index of all headers of several indexes, in which those of each are numbered after those of the one before
    it.

    Raises ParameterError for no headers, for more than 65,536, and for bytes that are no index.
    """
    every = [_entries(index) for index in snapshots(indexes)]
    count = sum(map(len, every))
    if not 1 <= count <= _MOST_INDEXED:
        raise ParameterError(f"1 to {_MOST_INDEXED} headers are indexed at once, not {count}")
    keys: list[bytes] = []
    for entries in every:
        if sorted(number for number, _ in entries) != list(range(len(entries))):
            raise ParameterError("an index has each number of its headers once")
        keys += [key for _, key in sorted(entries)]
    return _index_of(keys)


def find_header(indexes: Iterable[bytes], block_hash: bytes, /) -> list[tuple[int, int]]:
    """Where a header with this hash may be: each index with its first four bytes, by its place, and the header's number
    there.

    Raises ParameterError for a hash of another length and for bytes that are no index.
    """
    every, key = snapshots(indexes), _hash(block_hash)[:_KEY]
    found = []
    for place, index in enumerate(every):
        count = _checked_index(index)
        at = bisect_left(range(count), key, key=lambda entry: index[_KEY * entry : _KEY * entry + _KEY])
        while at < count and index[_KEY * at : _KEY * at + _KEY] == key:
            found.append((place, int.from_bytes(index[_KEY * count + 2 * at : _KEY * count + 2 * at + 2], "little")))
            at += 1
    return found


def chain_filter_headers(hashes: bytes, previous: bytes, /) -> bytes:
    """The filter headers, 32 bytes each, of blocks with these filter hashes, 32 bytes each; `previous` is the one
    before the first.

    Each is the double SHA-256 of the filter hash and the filter header before it (BIP-157 § Filter Headers). Raises
    ParameterError for other lengths.
    """
    hashes, header = snapshot(hashes), _hash(previous)
    if len(hashes) % 32:
        raise ParameterError(f"filter hashes have 32 bytes each, not {len(hashes)} in all")
    headers = []
    for at in range(0, len(hashes), 32):
        header = sha256d(hashes[at : at + 32] + header)
        headers.append(header)
    return b"".join(headers)


def filter_hashes(filters: Iterable[bytes], /) -> bytes:
    """The filter hashes, 32 bytes each, of compact filters: the double SHA-256 of each (BIP-157 § Filter Headers)."""
    return b"".join(map(sha256d, snapshots(filters)))


def _whole_headers(headers: bytes) -> bytes:
    headers = snapshot(headers)
    size = len(headers)
    left = size % HEADER_SIZE
    if left:
        raise FormatError(f"truncated: {HEADER_SIZE} bytes wanted, {left} left", offset=size - left, field="header")
    return headers


def _with_hashes(headers: bytes, hashes: bytes) -> tuple[bytes, bytes]:
    headers, hashes = _whole_headers(headers), snapshot(hashes)
    count = len(headers) // HEADER_SIZE
    if len(hashes) != 32 * count:
        raise ParameterError(f"the hashes of {count} headers have {32 * count} bytes, not {len(hashes)}")
    return headers, hashes


def _previous(headers: bytes, number: int) -> bytes:
    return headers[HEADER_SIZE * number + 4 : HEADER_SIZE * number + 36]


def _hash(given: bytes) -> bytes:
    taken = snapshot(given)
    if len(taken) != 32:
        raise ParameterError(f"a hash has 32 bytes, not {len(taken)}")
    return taken


def _index_of(keys: Sequence[bytes]) -> bytes:
    """The index of headers with these keys, by number."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return b"".join([*(keys[number] for number in order), *(number.to_bytes(2, "little") for number in order)])


def _checked_index(index: bytes) -> int:
    """The number of headers in an index."""
    count, left = divmod(len(index), _ENTRY)
    if left:
        raise ParameterError(f"an index has {_ENTRY} bytes for each header, not {len(index)} in all")
    return count


def _entries(index: bytes) -> list[tuple[int, bytes]]:
    """Number and key of each header of an index."""
    count = _checked_index(index)
    numbers = (int.from_bytes(index[at : at + 2], "little") for at in range(_KEY * count, len(index), 2))
    return [(number, index[_KEY * at : _KEY * at + _KEY]) for at, number in enumerate(numbers)]


def _difficulty(given: bytes) -> tuple[int, int]:
    taken = snapshot(given)
    if len(taken) != 36:
        raise ParameterError(f"bits and target have 36 bytes, not {len(taken)}")
    return int.from_bytes(taken[:4], "little"), int.from_bytes(taken[4:], "little")
