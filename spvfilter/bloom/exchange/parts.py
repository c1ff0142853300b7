"""Steps shared by several formats: recognize other programs' files, check lengths, swap words, wrap bits in filters."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from spvfilter.bloom.base import Encode, allocate
from spvfilter.bloom.fileformat import FLAG_PARTITIONED, KIND_BITS, MAX_HASH_FUNCS, FileHeader
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import HashFamily
from spvfilter.errors import FormatError, ParameterError, counted
from spvfilter.kernel import Encoding

if TYPE_CHECKING:
    from typing_extensions import Buffer

WORD = 64  # Bits of a word.
REDIS = b""
"""Beginning of the chunks of RedisBloom, whose first field is a number of keys."""
_TEXT: dict[Encode, Encoding] = {None: Encoding.BYTES, "utf-8": Encoding.UTF8}
_SCALABLE = "a pybloom-live ScalableBloomFilter: read it with read_scalable_pybloom_live"
RBLOOM = (
    "an rbloom file, which cannot be read because it does not contain the program's hash function: add the keys to "
    "a new filter instead"
)
"""How error messages describe an rbloom file."""
_MOST_RBLOOM = 100  # Hash functions of an rbloom filter with a rate of 1e-30 (our choice).
_MAKES = {  # First bytes of files that are often mistaken for each other, and the advice for each.
    b"SPVBLOOM": "a filter file of spvfilter: open it with BloomFilter.open",
    b"MBITARRAY": "a pybloomfiltermmap3 file: read it with read_pybloomfiltermmap3 or `spvfilter bloom check`",
    b"PAR1": "a Parquet file: read its filters with column_filters",
    b"\xac\xed\x00\x05": "a serialized Java object: write the filter with writeTo instead",
    b"\x80\x02": "a Python pickle: write the filter in its own format instead",
    b"\x80\x03": "a Python pickle: write the filter in its own format instead",
    b"\x80\x04": "a Python pickle: write the filter in its own format instead",
    b"\x80\x05": "a Python pickle: write the filter in its own format instead",
    b"\x1f\x8b": "a gzip file: unpack it first",
    b"REDIS": "a dump of a Redis server: save the filter with BF.SCANDUMP instead",
    b"\x02\x00\x00\x00\xcd\xcc\xcc\xcc\xcc\xcc\xec?": _SCALABLE,
    b"\x04\x00\x00\x00\xcd\xcc\xcc\xcc\xcc\xcc\xec?": _SCALABLE,
    b'{"m":': "a JSON file of bits-and-blooms: read it with read_bits_and_blooms",
}


def viewed(raw: Buffer, own: bytes | None = None) -> memoryview:
    """Return a view of the bytes of a file.

    Raises FormatError if the file starts like another program's. `own` is the expected beginning. Only files of
    Redis may start like those of rbloom: with a small number, u64, little endian.
    """
    view = memoryview(raw).cast("B")
    for start, make in _MAKES.items():
        if start != own and view[: len(start)] == start:
            raise FormatError(f"this is {make}", offset=0, field="file")
    if own != REDIS and len(view) > 8 and 1 <= view[0] <= _MOST_RBLOOM and not any(view[1:8]):
        raise FormatError(f"this is {RBLOOM}", offset=0, field="file")
    return view


def number(view: memoryview, at: int, size: int, field: str, *, signed: bool = False) -> int:
    """Return the big-endian integer of `size` bytes at `at`. Raises FormatError if the file ends too soon."""
    if len(view) < at + size:
        raise FormatError(f"truncated: expected {at + size} bytes, got {len(view)}", offset=len(view), field=field)
    return int.from_bytes(view[at : at + size], "big", signed=signed)


def check_functions(count: int, at: int) -> None:
    """Raise FormatError unless a filter may have `count` hash functions."""
    if not 1 <= count <= MAX_HASH_FUNCS:
        raise FormatError(
            f"expected 1 to {MAX_HASH_FUNCS} hash functions, not {count}: did another program write this file?",
            offset=at,
            field="hash_funcs",
        )


def check_length(view: memoryview, size: int, field: str) -> None:
    """Raise FormatError unless the file has `size` bytes."""
    if len(view) < size:
        message = f"truncated: expected {size} bytes, got {len(view)}"
        raise FormatError(message, offset=len(view), field=field)
    if len(view) > size:
        raise FormatError(counted(len(view) - size, "trailing byte"), offset=size, field=field)


def swap(source: memoryview, target: memoryview) -> None:
    """Copy `source` to `target` and reverse the bytes of each 8-byte word."""
    for at in range(0, len(source), 1 << 20):
        words = array("Q", bytes(source[at : at + (1 << 20)]))
        words.byteswap()
        target[at : at + 8 * len(words)] = words.tobytes()


def swapped(source: memoryview) -> memoryview:
    """Return a copy of `source` in which the bytes of each 8-byte word are reversed."""
    target = memoryview(allocate(len(source))).cast("B")
    swap(source, target)
    return target


def text_encoding(encode: Encode) -> Encoding:
    """Return the encoding for bytes or text. Raises ParameterError if keys have any other type."""
    if callable(encode) or encode not in _TEXT:
        raise ParameterError(f"encode must be None for bytes or 'utf-8' for text, not {encode!r}")
    return _TEXT[encode]


def filter_over(
    body: memoryview,
    bits: int,
    hash_funcs: int,
    hashing: HashFamily,
    encoding: Encoding,
    *,
    function: Callable[[object], bytes] | None = None,
    partitioned: bool = False,
    capacity: int = 0,
    fp_rate: float = 0.0,
) -> BloomFilter:
    """Return a filter with a copy of the bits. Bit b is 1 << (b % 8) of byte b // 8.

    Raises FormatError if bits beyond `bits` are set, TooLargeError if the filter does not fit into memory.
    """
    size = (bits + 7) // 8
    if any(body[size:]) or (bits % 8 and body[size - 1] >> bits % 8):
        raise FormatError(f"bits beyond the first {bits} are set", offset=0, field="bits")
    buffer = allocate(size)
    memoryview(buffer).cast("B")[:] = body[:size]
    flags = FLAG_PARTITIONED if partitioned else 0
    header = FileHeader(KIND_BITS, hashing.family, encoding, flags, hash_funcs, bits, capacity, fp_rate, hashing.key)
    return BloomFilter._made(header, hashing, function, buffer, private=True, on_full="raise")
