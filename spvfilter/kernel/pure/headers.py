"""Runs of block headers: hashes, links, rules and an index by hash; and chains of filter headers."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import groupby
from struct import Struct

from spvfilter.errors import FormatError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure.arguments import hash_of, snapshot, snapshots, whole
from spvfilter.protocol import HEADER_SIZE

_MEDIAN_SPAN = 11  # Headers whose times make the median, Core chain.h nMedianTimeSpan.
_MOST_INDEXED = 1 << 16  # Headers in one index (our choice): their numbers fit into a u16.
_KEY, _ENTRY = 4, 6  # Bytes of a hash that an index contains, and bytes of a header in the index.
_FIELDS = Struct("<i64xII4x")  # Version, time and bits of a header.


def header_hashes(headers: bytes, /) -> bytes:
    """Return the block hashes, 32 bytes each, of headers of 80 bytes each.

    Raises FormatError if the last header is truncated.
    """
    headers = _whole_headers(headers)
    return b"".join([sha256d(headers[at : at + HEADER_SIZE]) for at in range(0, len(headers), HEADER_SIZE)])


def linked_headers(headers: bytes, hashes: bytes, /) -> int:
    """Return how many headers at the start follow each other without a break.

    Args:
        headers: The headers, 80 bytes each.
        hashes: Their block hashes, 32 bytes each.

    Raises:
        FormatError: The last header is truncated.
        ParameterError: The number of hashes is not the number of headers.
    """
    headers, hashes = _with_hashes(headers, hashes)
    count = len(headers) // HEADER_SIZE
    links = (
        number for number in range(1, count) if _previous(headers, number) != hashes[32 * number - 32 : 32 * number]
    )
    return next(links, count)


def header_bits(headers: bytes, /) -> list[tuple[int, int]]:
    """Return the compact bits of headers, 80 bytes each, as runs: the bits, and how many successive headers have them.

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
    """Return how many headers at the start obey the rules, and how many of these are late.

    A header is late if its time is more than `late_by` seconds after the header before it. The rules are:

    - The bits equal those in `usual`, or those in `late` for a late header.
    - The block hash is at most the target in `usual` or `late`.
    - The time is above the median of the eleven times before it, and at most `latest`.
    - The version is at least `least_version`.

    Links between the headers are not checked.

    Args:
        headers: The headers, 80 bytes each.
        hashes: Their block hashes, 32 bytes each.
        times: Times of 1 to 11 headers before them, u32 little endian, oldest first.
        usual: Bits (u32 little endian) and target (32 bytes little endian) of headers that are not late.
        late: Bits and target of late headers.
        late_by: Seconds after the previous header beyond which a header is late.
        least_version: Lowest version that is allowed.
        latest: Latest time that is allowed (Unix time).

    Raises:
        FormatError: The last header is truncated.
        ParameterError: An argument has the wrong size, or is a number that no header can have.
    """
    headers, hashes = _with_hashes(headers, hashes)
    before = snapshot(times)
    if len(before) % 4 or not 1 <= len(before) // 4 <= _MEDIAN_SPAN:
        raise ParameterError(f"expected 1 to {_MEDIAN_SPAN} times of 4 bytes each, not {len(before)} bytes")
    expected = [_difficulty(each) for each in (usual, late)]
    late_by = whole(late_by, 0, 1 << 32, "a difference of times must be from 0 to 2^32")
    least_version = whole(least_version, -(1 << 31), (1 << 31) - 1, "a version must be a signed 32-bit number")
    latest = whole(latest, -1, 1 << 32, "the latest time must be from -1 to 2^32")
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
    """Return an index of successive headers, for looking them up by hash.

    The index consists of the first four bytes of each hash, in ascending order, and then the numbers of the headers in
    the same order, u16 little endian. Headers for which these bytes are equal are in the order of their numbers.

    Args:
        headers: 1 to 65,536 headers, 80 bytes each.
        last: Hash of the last header.

    Raises:
        FormatError: The last header is truncated.
        ParameterError: There are no headers or too many, or the hash has the wrong length.
    """
    headers, last = _whole_headers(headers), hash_of(last)
    count = len(headers) // HEADER_SIZE
    if not 1 <= count <= _MOST_INDEXED:
        raise ParameterError(f"an index takes 1 to {_MOST_INDEXED} headers, not {count}")
    return _index_of([*(_previous(headers, number)[:_KEY] for number in range(1, count)), last[:_KEY]])


def join_indexes(indexes: Iterable[bytes], /) -> bytes:
    """Merge several indexes into one. The headers of each index are numbered after those of the index before it.

    Raises ParameterError if there are no headers or more than 65,536, or if the bytes are not an index.
    """
    every = [_entries(index) for index in snapshots(indexes, "indexes")]
    count = sum(map(len, every))
    if not 1 <= count <= _MOST_INDEXED:
        raise ParameterError(f"an index takes 1 to {_MOST_INDEXED} headers, not {count}")
    keys: list[bytes] = []
    for entries in every:
        if sorted(number for number, _ in entries) != list(range(len(entries))):
            raise ParameterError("an index must contain each number exactly once")
        keys += [key for _, key in sorted(entries)]
    return _index_of(keys)


def find_header(indexes: Iterable[bytes], block_hash: bytes, /) -> list[tuple[int, int]]:
    """Return where a header with this hash may be, as pairs: the position of an index, and the header's number in it.

    An index is listed if it contains the first four bytes of the hash. Raises ParameterError if the hash has the wrong
    length, or if the bytes are not an index.
    """
    every, key = snapshots(indexes, "indexes"), hash_of(block_hash)[:_KEY]
    found = []
    for place, index in enumerate(every):
        count = _checked_index(index)
        at = bisect_left(range(count), key, key=lambda entry: index[_KEY * entry : _KEY * entry + _KEY])
        while at < count and index[_KEY * at : _KEY * at + _KEY] == key:
            found.append((place, int.from_bytes(index[_KEY * count + 2 * at : _KEY * count + 2 * at + 2], "little")))
            at += 1
    return found


def chain_filter_headers(hashes: bytes, previous: bytes, /) -> bytes:
    """Return the filter headers, 32 bytes each, of successive blocks.

    A filter header is the double SHA-256 of the filter hash and the previous filter header (BIP-157 § Filter Headers).

    Args:
        hashes: Filter hashes of the blocks, 32 bytes each.
        previous: The filter header before the first block.

    Raises:
        ParameterError: An argument has the wrong length.
    """
    hashes, header = snapshot(hashes), hash_of(previous)
    if len(hashes) % 32:
        raise ParameterError(f"filter hashes must be a multiple of 32 bytes long, not {len(hashes)}")
    headers = []
    for at in range(0, len(hashes), 32):
        header = sha256d(hashes[at : at + 32] + header)
        headers.append(header)
    return b"".join(headers)


def filter_hashes(filters: Iterable[bytes], /) -> bytes:
    """Return the filter hashes, 32 bytes each, of compact filters.

    A filter hash is the double SHA-256 of the filter (BIP-157 § Filter Headers).
    """
    return b"".join(map(sha256d, snapshots(filters, "filters")))


def _whole_headers(headers: bytes) -> bytes:
    headers = snapshot(headers)
    size = len(headers)
    left = size % HEADER_SIZE
    if left:
        raise FormatError(f"truncated: expected {HEADER_SIZE} bytes, {left} left", offset=size - left, field="header")
    return headers


def _with_hashes(headers: bytes, hashes: bytes) -> tuple[bytes, bytes]:
    headers, hashes = _whole_headers(headers), snapshot(hashes)
    count = len(headers) // HEADER_SIZE
    if len(hashes) != 32 * count:
        raise ParameterError(f"the hashes of {count} headers must be {32 * count} bytes long, not {len(hashes)}")
    return headers, hashes


def _previous(headers: bytes, number: int) -> bytes:
    return headers[HEADER_SIZE * number + 4 : HEADER_SIZE * number + 36]


def _index_of(keys: Sequence[bytes]) -> bytes:
    """Return the index of headers. `keys` contains the key of each header, in the order of their numbers."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return b"".join([*(keys[number] for number in order), *(number.to_bytes(2, "little") for number in order)])


def _checked_index(index: bytes) -> int:
    """Return the number of headers in an index. Raises ParameterError for any other size."""
    count, left = divmod(len(index), _ENTRY)
    if left:
        raise ParameterError(f"an index must be a multiple of {_ENTRY} bytes long, not {len(index)}")
    return count


def _entries(index: bytes) -> list[tuple[int, bytes]]:
    """Return the number and the key of each header in an index."""
    count = _checked_index(index)
    numbers = (int.from_bytes(index[at : at + 2], "little") for at in range(_KEY * count, len(index), 2))
    return [(number, index[_KEY * at : _KEY * at + _KEY]) for at, number in enumerate(numbers)]


def _difficulty(given: bytes) -> tuple[int, int]:
    """Return the bits and the target as integers."""
    taken = snapshot(given)
    if len(taken) != 36:
        raise ParameterError(f"bits and target must be 36 bytes long, not {len(taken)}")
    return int.from_bytes(taken[:4], "little"), int.from_bytes(taken[4:], "little")
