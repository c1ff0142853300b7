"""Read the filters of bits-and-blooms (github.com/bits-and-blooms/bloom, Go), binary and JSON.

All integers are u64, big endian:

    bits m
    number of hash functions k
    bits of the bit set, equal to m
    64-bit words

Bit b is bit b % 64 of word b // 64. In JSON, an object has the members m, k and b. Member b is the bit set in base64
(URL alphabet). The bit set begins with its number of bits. Source: bloom.go of version 3.3, bitset.go of version 1.2.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING

from spvfilter._public import public
from spvfilter.bloom.base import Encode
from spvfilter.bloom.exchange.foreignhashes import BitsAndBloomsHash
from spvfilter.bloom.exchange.parts import (
    WORD,
    check_functions,
    check_length,
    filter_over,
    number,
    swapped,
    text_encoding,
    viewed,
)
from spvfilter.bloom.filter import BloomFilter
from spvfilter.errors import FormatError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_JSON = b'{"m":'  # Go writes JSON without spaces, in the order of the members.


@public
def read_bits_and_blooms(raw: Buffer, *, encode: Encode = None) -> BloomFilter:
    """Return the filter in the bytes that WriteTo or MarshalJSON of bits-and-blooms wrote.

    Its hash family is BitsAndBloomsHash. Version 1 of the library wrote the same format but hashed with FNV: such a
    file is read without an error, but its keys are not found.

    Args:
        raw: The bytes, binary or JSON.
        encode: Type of the keys: None for bytes (Add), "utf-8" for text (AddString).

    Raises:
        FormatError: The bytes are truncated, too long or malformed, or have an impossible size.
        ParameterError: `encode` is any other type.
        TooLargeError: The filter does not fit into memory.
    """
    encoding = text_encoding(encode)
    view = viewed(raw, _JSON)
    if bytes(view[:1]) == b"{":
        bits, functions, view = _of_json(view)
        start = 0
    else:
        bits, functions = number(view, 0, 8, "m"), number(view, 8, 8, "k")
        start = 16
    check_functions(functions, 8)
    if bits < 1:
        raise FormatError(f"expected at least 1 bit, not {bits}", offset=0, field="m")
    if (length := number(view, start, 8, "length")) != bits:
        raise FormatError(f"expected a bit set of {bits} bits, got {length}", offset=start, field="length")
    start += 8
    check_length(view, start + 8 * -(-bits // WORD), "words")
    return filter_over(swapped(view[start:]), bits, functions, BitsAndBloomsHash(), encoding)


def _of_json(view: memoryview) -> tuple[int, int, memoryview]:
    """Return bits, number of hash functions and bit set of a filter in JSON."""
    try:
        made = json.loads(bytes(view))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"malformed JSON: {error}", offset=0, field="JSON") from None
    bits, functions, words = (made.get(name) for name in "mkb")
    if type(bits) is not int or type(functions) is not int or not isinstance(words, str):
        raise FormatError("expected numbers m and k, and a string b", offset=0, field="JSON")
    try:
        raw = base64.b64decode(words, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"malformed base64: {error}", offset=0, field="b") from None
    return bits, functions, memoryview(raw)
