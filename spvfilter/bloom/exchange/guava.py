"""Read and write the bytes of Guava's BloomFilter.writeTo (com.google.common.hash).

All integers are big endian:

    strategy, i8: 0 MURMUR128_MITZ_32, 1 MURMUR128_MITZ_64
    number of hash functions, u8
    number of words, i32
    64-bit words

Bit b is bit b % 64 of word b // 64. Source: BloomFilter and BloomFilterStrategies of Guava 31.1. The bytes do not name
the funnel, which is the rule that turns a key into bytes.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from spvfilter._public import public
from spvfilter.bloom.exchange.foreignhashes import GuavaHash
from spvfilter.bloom.exchange.parts import (
    WORD,
    check_functions,
    check_length,
    filter_over,
    number,
    swap,
    swapped,
    viewed,
)
from spvfilter.bloom.filter import BloomFilter, refuse_other_kinds
from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import Encoding

if TYPE_CHECKING:
    from typing_extensions import Buffer

_HEADER = struct.Struct(">bBi")
_STRATEGIES = (32, 64)
_MAX_FUNCTIONS = 255
_MAX_WORDS = (1 << 31) - 1
_FUNNELS = {"byteArray": Encoding.BYTES, "integer": Encoding.INT32, "long": Encoding.INT64}
_NAMES = "byteArray, string, unencodedChars, integer or long"
# Java and Python write these in different byte orders.
_AMBIGUOUS = ("utf-16", "utf-32")


@public
def read_guava(raw: Buffer, *, funnel: str | None = None, charset: str | None = None) -> BloomFilter:
    """Return the filter in the bytes that Guava's BloomFilter.writeTo wrote. Its hash family is GuavaHash.

    Args:
        raw: The bytes.
        funnel: Funnel of the filter, which the bytes do not contain: "byteArray" for bytes, "string" or
            "unencodedChars" for str, "integer" for int32, "long" for int64.
        charset: Name of the charset; needed for "string", and only for it.

    Raises:
        FormatError: The bytes are truncated or too long, or have a different strategy or an impossible size.
        ParameterError: The funnel or its charset is missing or unknown.
        TooLargeError: The filter does not fit into memory.
    """
    encoding, function = _encoding(funnel, charset)
    view = viewed(raw)
    strategy = number(view, 0, 1, "strategy", signed=True)
    if strategy not in (0, 1):
        raise FormatError(
            f"expected strategy 0 or 1, not {strategy}: did another program write this file?",
            offset=0,
            field="strategy",
        )
    functions = number(view, 1, 1, "hash_funcs")
    check_functions(functions, 1)
    words = number(view, 2, 4, "words", signed=True)
    if words < 1:
        raise FormatError(f"expected at least 1 word, not {words}", offset=2, field="words")
    check_length(view, _HEADER.size + 8 * words, "words")
    hashing = GuavaHash(_STRATEGIES[strategy])
    body = swapped(view[_HEADER.size :])
    return filter_over(body, words * WORD, functions, hashing, encoding, function=function)


@public
def write_guava(filter: BloomFilter) -> bytes:
    """Return the bytes of a filter that Guava's BloomFilter.readFrom can read.

    The filter must have GuavaHash as its hash family, at most 255 hash functions, and whole 64-bit words. It must not
    be partitioned. Raises ParameterError if these conditions are not met, and TypeError if `filter` is not a
    BloomFilter.
    """
    refuse_other_kinds(filter)
    hashing = filter.hashing
    if not isinstance(hashing, GuavaHash):
        why = f"a filter for Guava needs GuavaHash as its hash family, not {hashing!r}: create it in Python"
        raise ParameterError(why)
    words, rest = divmod(filter.bits, WORD)
    if filter.partitioned or rest or not 1 <= words <= _MAX_WORDS or not 1 <= filter.hash_funcs <= _MAX_FUNCTIONS:
        raise ParameterError(
            f"Guava cannot read this filter: it needs a multiple of {WORD} bits, 1 to {_MAX_FUNCTIONS} hash functions "
            "and"
            f" one plane: {filter!r}"
        )
    body = bytearray(filter.bits // 8)
    swap(filter.body, memoryview(body))
    return _HEADER.pack(_STRATEGIES.index(hashing.strategy), filter.hash_funcs, words) + bytes(body)


def _encoding(funnel: str | None, charset: str | None) -> tuple[Encoding, Callable[[object], bytes] | None]:
    """Return the encoding of a funnel, and its function if the encoding is a custom one."""
    if funnel is None:
        raise ParameterError(f"a Guava file does not name its funnel: pass funnel= as {_NAMES}")
    if funnel not in (*_FUNNELS, "string", "unencodedChars"):
        raise ParameterError(f"funnel must be {_NAMES}, not {funnel!r}")
    if funnel != "string":
        if charset is not None:
            raise ParameterError(f"the funnel {funnel} has no charset: omit charset=")
        if funnel == "unencodedChars":
            return Encoding.CALLABLE, partial(_encoded, "utf-16-le", "surrogatepass")
        return _FUNNELS[funnel], None
    if charset is None:
        raise ParameterError("the string funnel needs its charset, such as charset='utf-8'")
    try:
        name = codecs.lookup(charset).name
    except LookupError:
        raise ParameterError(f"unknown charset {charset!r}") from None
    if name in _AMBIGUOUS:
        raise ParameterError(
            f"Java and Python write {name} in different byte orders: pass {name}-be or {name}-le, or pass"
            " funnel='byteArray' and encode the keys yourself"
        )
    return (Encoding.UTF8, None) if name == "utf-8" else (Encoding.CALLABLE, partial(_encoded, name, "strict"))


def _encoded(charset: str, errors: str, key: object) -> bytes:
    """Encode a key as text. Raises TypeError if it is not text, UnicodeEncodeError if the charset lacks a character."""
    if not isinstance(key, str):
        raise TypeError(f"the funnel takes str, not {type(key).__name__}")
    return key.encode(charset, errors)
