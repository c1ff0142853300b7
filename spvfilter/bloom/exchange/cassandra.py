"""Read Filter.db, the filter of partition keys that Cassandra stores next to each SSTable.

All integers are big endian:

    number of hash functions, i32
    number of words, i32
    64-bit words

Since Cassandra 4, bit b has been 1 << (b % 8) of byte b // 8. Before that, the bytes of each word were reversed.
Source: BloomFilterSerializer and OffHeapBitSet of Cassandra 4.1, BigFormat.hasOldBfFormat of 5.0. The file does not
name the release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import public
from spvfilter.bloom.base import Encode
from spvfilter.bloom.exchange.foreignhashes import CassandraHash
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
from spvfilter.errors import FormatError, ParameterError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_START = 8  # Bytes before the words.


@public
def read_cassandra(raw: Buffer, *, release: int | None = None, encode: Encode = None) -> BloomFilter:
    """Return the filter in the bytes of a Filter.db of Cassandra. Its hash family is CassandraHash.

    Releases 4 and 5 write the same format.

    Args:
        raw: The bytes of the file.
        release: Release of Cassandra, which the file does not contain. The first two letters of the file's name show
            it: ia to lb for 2 (releases 1.2 to 2.2), ma to me for 3, and na, nb, oa or da for 4 and 5.
        encode: Type of the keys: None for serialized partition keys (an int is big endian), "utf-8" for text.

    Raises:
        FormatError: The bytes are truncated or too long, or have an impossible size.
        ParameterError: `release` is missing or unknown, or `encode` is any other type.
        TooLargeError: The filter does not fit into memory.
    """
    if release is None:
        raise ParameterError(
            "a Filter.db does not name its release: pass release= as 2 (files ia to lb), 3 (ma to me) or 4 (na, nb, "
            "oa, da; also for release 5)"
        )
    release = 4 if release == 5 else release
    hashing = CassandraHash(release)
    encoding = text_encoding(encode)
    view = viewed(raw)
    functions = number(view, 0, 4, "hash_funcs", signed=True)
    check_functions(functions, 0)
    words = number(view, 4, 4, "words", signed=True)
    if words < 1:
        raise FormatError(f"expected at least 1 word, not {words}", offset=4, field="words")
    check_length(view, _START + 8 * words, "words")
    body = view[_START:] if release == 4 else swapped(view[_START:])
    return filter_over(body, words * WORD, functions, hashing, encoding)
