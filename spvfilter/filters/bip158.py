"""BIP-158 basic block filters and BIP-157 filter headers, equal to Bitcoin Core's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.filters.gcs import GolombCodedSet
from spvfilter.hashes import sha256d
from spvfilter.kernel import gcs_build, walk_block
from spvfilter.primitives import Serializable, to_bytes
from spvfilter.protocol import BASIC_M, BASIC_P, HEADER_SIZE

_OP_RETURN = 0x6A


@public
class BasicFilter(GolombCodedSet):
    """The basic filter of one block: its output scripts except OP_RETURN ones, and the scripts that it spends, empty
    ones excluded.

    `bytes(f)` is the filter in a `cfilter` message. P = 19, M = 784931; the SipHash key is the first 16 bytes of the
    block hash (wire order). Raises ParameterError unless the block hash has 32 bytes, FormatError as GolombCodedSet.
    """

    __slots__ = ("block_hash",)

    def __init__(self, data: bytes, block_hash: bytes) -> None:
        if len(block_hash) != 32:
            raise ParameterError(f"a block hash has 32 bytes, not {len(block_hash)}")
        super().__init__(data, block_hash[:16], BASIC_P, BASIC_M)
        self.block_hash = block_hash

    @classmethod
    # a block's set
    def build(cls, raw_block: bytes | Serializable, prevout_scripts: Iterable[bytes]) -> Self:  # type: ignore[override]
        """The filter of a block; `prevout_scripts` are the scriptPubKeys that its inputs spend, in any order, without
        the coinbase's.

        Raises ParameterError unless there is one script for each input, and FormatError for a malformed block.
        """
        raw = to_bytes(raw_block)
        spent = [bytes(script) for script in prevout_scripts]
        outputs, inputs = _contents(raw)
        if len(spent) != inputs:
            raise ParameterError(f"the block spends {inputs} outputs, {len(spent)} scripts were given")
        block_hash = sha256d(raw[:HEADER_SIZE])
        return cls(basic_data(block_hash, filter_elements(outputs, spent)), block_hash)

    @classmethod
    def parse(cls, data: bytes, block_hash: bytes) -> Self:  # type: ignore[override]  # parameters are BIP-158's
        """The filter in the bytes of a `cfilter` message. Raises FormatError as GolombCodedSet.parse does."""
        return cls(bytes(data), bytes(block_hash))

    def match(self, script_pubkey: bytes) -> bool:
        """Whether the block pays or spends this scriptPubKey; false positives are possible."""
        return self.match_any((script_pubkey,))

    @property
    def filter_hash(self) -> bytes:
        """The double SHA-256 of the filter's bytes, 32 bytes in wire order, as in `cfheaders`."""
        return filter_hash(bytes(self))

    def header(self, previous: bytes) -> bytes:
        """The block's filter header, from the filter header of the previous block."""
        return filter_header(self.filter_hash, previous)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.block_hash[::-1].hex()}, N={self.n}, {len(bytes(self))} bytes>"


def _contents(raw: bytes) -> tuple[list[bytes], int]:
    """The output scripts of a block, and the number of outputs that it spends."""
    scripts: list[bytes] = []
    inputs = 0
    for position, tx in enumerate(walk_block(raw)):
        scripts += [raw[start:end] for _, start, end in tx.outputs]
        inputs += len(tx.inputs) if position else 0
    return scripts, inputs


@public
def filter_elements(output_scripts: Iterable[bytes], spent_scripts: Iterable[bytes]) -> set[bytes]:
    """The scripts of a block that its basic filter contains (BIP-158 § Contents)."""
    elements = {script for script in output_scripts if script and script[0] != _OP_RETURN}
    elements.update(script for script in spent_scripts if script)
    return elements


@public
def basic_data(block_hash: bytes, elements: Iterable[bytes]) -> bytes:
    """The bytes of the basic filter with these elements. Raises ParameterError for more than 2^25 of them."""
    return gcs_build(elements, block_hash[:16], BASIC_P, BASIC_M)


@public
def filter_hash(data: bytes) -> bytes:
    """The double SHA-256 of a filter's bytes (BIP-157 § Filter Headers)."""
    return sha256d(data)


@public
def filter_header(hash_of_filter: bytes, previous: bytes) -> bytes:
    """The double SHA-256 of filter hash and previous filter header, 32 bytes each, else ParameterError (BIP-157 §
    Filter Headers).
    """
    if len(hash_of_filter) != 32 or len(previous) != 32:
        raise ParameterError(f"hashes have 32 bytes, not {len(hash_of_filter)} and {len(previous)}")
    return sha256d(hash_of_filter + previous)


@public
def filter_headers(hashes: Iterable[bytes], previous: bytes) -> Iterator[bytes]:
    """The filter headers of successive blocks from their filter hashes; `previous` is the one before the first."""
    for hash_of_filter in hashes:
        previous = filter_header(hash_of_filter, previous)
        yield previous
