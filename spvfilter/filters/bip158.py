"""Basic block filters (BIP-158) and filter headers (BIP-157), byte for byte as in Bitcoin Core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from spvfilter._public import public
from spvfilter.errors import ParameterError, counted
from spvfilter.filters.gcs import GolombCodedSet
from spvfilter.hashes import sha256d
from spvfilter.kernel import gcs_build, walk_block
from spvfilter.primitives import Serializable, hash_from_hex, to_bytes
from spvfilter.protocol import BASIC_M, BASIC_P, HEADER_SIZE

_OP_RETURN = 0x6A


@public
class BasicFilter(GolombCodedSet):
    """The basic filter of one block (BIP-158).

    It contains the block's output scripts and the scripts of the outputs that the block spends. Empty scripts and
    output scripts that start with OP_RETURN are left out. `bytes(f)` is the filter as in a `cfilter` message.

    The Golomb-Rice parameter P is 19, and the false-positive rate is 1/M for M = 784931. The SipHash key is the first
    16 bytes of the block hash.

    Args:
        data: The filter's bytes, an encoded Golomb-coded set.
        block_hash: Hash of the block, 32 bytes in wire order.

    Raises:
        ParameterError: The block hash is not 32 bytes long.
        FormatError: The encoded set is malformed; see GolombCodedSet.
    """

    __slots__ = ("block_hash",)

    def __init__(self, data: bytes, block_hash: bytes) -> None:
        if len(block_hash) != 32:
            raise ParameterError(f"a block hash must be 32 bytes long, not {len(block_hash)}")
        super().__init__(data, block_hash[:16], BASIC_P, BASIC_M)
        self.block_hash: bytes = block_hash

    @classmethod
    # the arguments are a block's, not a set's
    def build(cls, raw_block: bytes | Serializable, prevout_scripts: Iterable[bytes]) -> Self:  # type: ignore[override]
        """Build the filter of a block.

        Args:
            raw_block: The block, as bytes or as an object that serializes to them.
            prevout_scripts: The scriptPubKeys of the outputs that the block spends, one for each input except the
                coinbase's, in any order.

        Raises:
            ParameterError: The number of scripts is not the number of outputs that the block spends.
            FormatError: The block is malformed.
        """
        raw = to_bytes(raw_block)
        spent = [bytes(script) for script in prevout_scripts]
        outputs, inputs = _contents(raw)
        if len(spent) != inputs:
            given = counted(len(spent), "script")
            raise ParameterError(f"the block spends {counted(inputs, 'output')}, but prevout_scripts contains {given}")
        block_hash = sha256d(raw[:HEADER_SIZE])
        return cls(basic_data(block_hash, filter_elements(outputs, spent)), block_hash)

    @classmethod
    def parse(cls, data: bytes, block_hash: bytes | str) -> Self:  # type: ignore[override]  # parameters are BIP-158's
        """Parse the filter of a `cfilter` message.

        Args:
            data: The filter's bytes.
            block_hash: Hash of the block, 32 bytes in wire order or 64 hex digits.

        Raises:
            ParameterError: The block hash is neither 32 bytes nor 64 hex digits.
            FormatError: The encoded set is malformed; see GolombCodedSet.parse.
        """
        return cls(bytes(data), hash_from_hex(block_hash) if isinstance(block_hash, str) else bytes(block_hash))

    def match(self, script_pubkey: bytes) -> bool:
        """Return True if the block pays or spends this scriptPubKey. False positives are possible."""
        return self.match_any((script_pubkey,))

    @property
    def filter_hash(self) -> bytes:
        """The double SHA-256 of the filter's bytes, 32 bytes in wire order, as in a `cfheaders` message."""
        return filter_hash(bytes(self))

    def header(self, previous: bytes) -> bytes:
        """Return the filter header of the block, 32 bytes.

        Args:
            previous: Filter header of the previous block, 32 bytes.

        Raises:
            ParameterError: `previous` is not 32 bytes long.
        """
        return filter_header(self.filter_hash, previous)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.block_hash[::-1].hex()}, N={self.n}, {len(bytes(self))} bytes>"


def _contents(raw: bytes) -> tuple[list[bytes], int]:
    """Return the output scripts of a block, and the number of outputs that it spends."""
    scripts: list[bytes] = []
    inputs = 0
    for position, tx in enumerate(walk_block(raw)):
        scripts += [raw[start:end] for _, start, end in tx.outputs]
        inputs += len(tx.inputs) if position else 0
    return scripts, inputs


@public
def filter_elements(output_scripts: Iterable[bytes], spent_scripts: Iterable[bytes]) -> set[bytes]:
    """Return the scripts that a block's basic filter contains (BIP-158 § Contents).

    Args:
        output_scripts: The scriptPubKeys of all outputs of the block.
        spent_scripts: The scriptPubKeys of all outputs that the block spends.
    """
    elements = {script for script in output_scripts if script and script[0] != _OP_RETURN}
    elements.update(script for script in spent_scripts if script)
    return elements


@public
def basic_data(block_hash: bytes, elements: Iterable[bytes]) -> bytes:
    """Return the bytes of the basic filter that contains `elements`.

    Args:
        block_hash: Hash of the block, 32 bytes in wire order.
        elements: The scriptPubKeys to encode, at most 2^25; duplicates count once.

    Raises:
        ParameterError: There are more than 2^25 elements.
    """
    return gcs_build(elements, block_hash[:16], BASIC_P, BASIC_M)


@public
def filter_hash(data: bytes) -> bytes:
    """Return the filter hash: the double SHA-256 of a filter's bytes (BIP-157 § Filter Headers)."""
    return sha256d(data)


@public
def filter_header(hash_of_filter: bytes, previous: bytes) -> bytes:
    """Return the filter header of a block (BIP-157 § Filter Headers).

    It is the double SHA-256 of the filter hash and the previous filter header.

    Args:
        hash_of_filter: Hash of the block's filter, 32 bytes.
        previous: Filter header of the previous block, 32 bytes.

    Raises:
        ParameterError: An argument is not 32 bytes long.
    """
    if len(hash_of_filter) != 32 or len(previous) != 32:
        raise ParameterError(f"both hashes must be 32 bytes long, not {len(hash_of_filter)} and {len(previous)}")
    return sha256d(hash_of_filter + previous)


@public
def filter_headers(hashes: Iterable[bytes], previous: bytes) -> Iterator[bytes]:
    """Yield the filter headers of successive blocks.

    Args:
        hashes: Filter hashes of the blocks, in block order, 32 bytes each.
        previous: Filter header of the block before the first block, 32 bytes.

    Raises:
        ParameterError: A filter hash or `previous` is not 32 bytes long.
    """
    for hash_of_filter in hashes:
        previous = filter_header(hash_of_filter, previous)
        yield previous
