"""Questions to a full node, which REST and JSON-RPC both can answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from spvfilter._public import public
from spvfilter.errors import NodeAnswerError
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE, MAX_BLOCK_SIZE
from spvfilter.rpc.endpoint import Endpoint

MOST_BLOCKS = 5_000_000  # Blocks of a chain that an answer may claim (our choice): 95 years.
SMALL_ANSWER_SIZE = 1 << 20  # Bytes of an answer without a block (our choice).
BLOCK_ANSWER_SIZE = MAX_BLOCK_SIZE  # Bytes of a block.
# Bytes of the outputs that a block spends (our choice). At most 24,390 inputs fit into a block; this allows 1.3 kB for
# each. A typical block spends 0.2 MB.
SPENT_ANSWER_SIZE = 32_000_000
# Bytes of the list of txids in a mempool (our choice): 3 million, more than a mempool of 300 MB has.
MEMPOOL_ANSWER_SIZE = 200_000_000


@public
@dataclass(frozen=True, slots=True)
class ChainInfo:
    """A node's description of its chain (getblockchaininfo)."""

    name: str
    """The network, as Core names it: `main`, `test`, `testnet4`, `signet` or `regtest`."""
    height: int
    """Height of the best block."""
    best: bytes
    """Hash of the best block, 32 bytes in wire order."""
    prune_height: int
    """Height of the first block that the node has; 0 if it does not prune."""


@public
class NodeApi(Protocol):
    """One way to ask a node. Hashes have 32 bytes in wire order. All methods raise NodeError."""

    headers_at_once: int
    """Largest number of headers that `headers` returns."""
    tells_spent: bool
    """False once the node is known not to answer `spent`."""

    async def info(self) -> ChainInfo:
        """Ask for a description of the node's chain."""

    async def hash_at(self, height: int) -> bytes | None:
        """Ask for the hash of the best chain's block at a height; None if the chain is shorter."""

    async def headers(self, first: bytes, height: int, count: int) -> bytes:
        """Ask for up to `count` headers of the best chain, beginning with the block `first` at `height`.

        The answer is empty if this block is not in the best chain.
        """

    async def block(self, digest: bytes) -> bytes:
        """Ask for a block, which is not checked here. Raises NodePrunedError if the node has only its header."""

    async def spent(self, digest: bytes) -> bytes | None:
        """Ask for the outputs that a block spends, in the format of Core's REST call spenttxouts.

        None means that the node does not answer this.
        """

    async def mempool(self) -> list[bytes]:
        """The txids of the transactions in the node's mempool, in no order."""

    async def transactions(self, txids: Sequence[bytes]) -> list[bytes | None]:
        """The raw transactions with these txids, which are not checked; None where the mempool has none."""


def parsed_info(found: object, endpoint: Endpoint) -> ChainInfo:
    """Parse the answer to getblockchaininfo. Raises NodeAnswerError if it is malformed."""
    if not isinstance(found, dict):
        raise NodeAnswerError(f"{endpoint}: its description of the chain is not a JSON object")
    name, height, best, pruned = (
        found.get("chain"),
        found.get("blocks"),
        found.get("bestblockhash"),
        found.get("pruned"),
    )
    first = found.get("pruneheight", 0) if pruned is True else 0
    if not isinstance(name, str) or not name.isascii() or not name.isalnum() or len(name) > 40:
        raise NodeAnswerError(f"{endpoint}: its description of the chain does not name the network")
    if type(height) is not int or not 0 <= height < MOST_BLOCKS:
        raise NodeAnswerError(f"{endpoint}: the height of its chain is not a number from 0 to {MOST_BLOCKS - 1:,}")
    return ChainInfo(
        name, height, parsed_hash(best, endpoint), first if type(first) is int and 0 <= first <= height + 1 else 0
    )


def parsed_hash(text: object, endpoint: Endpoint) -> bytes:
    """Parse a hash in display order. Raises NodeAnswerError if it is malformed."""
    raw = parsed_hex(text, HASH_SIZE, endpoint)
    if len(raw) != HASH_SIZE:
        raise NodeAnswerError(f"{endpoint}: a hash has {HASH_SIZE} bytes, this answer has {len(raw)}")
    return raw[::-1]


def parsed_txids(found: object, endpoint: Endpoint) -> list[bytes]:
    """Parse the array or the object that getrawmempool returns. Raises NodeAnswerError if it is malformed."""
    if not isinstance(found, Iterable) or isinstance(found, str):
        raise NodeAnswerError(f"{endpoint}: its list of the mempool is not a JSON array or object of txids")
    return [parsed_hash(each, endpoint) for each in found]


def parsed_hex(text: object, most: int, endpoint: Endpoint) -> bytes:
    """Parse up to `most` bytes in hex. Raises NodeAnswerError if they are malformed or more."""
    if not isinstance(text, str) or len(text) > 2 * most:
        raise NodeAnswerError(f"{endpoint}: the answer is not a text with at most {most:,} bytes in hex")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise NodeAnswerError(f"{endpoint}: the answer is not hex") from None


def lacking(digest: bytes, endpoint: Endpoint, words: str) -> str:
    """Describe a block that a node does not have."""
    return f"{endpoint}: does not have block {hash_to_hex(digest)}: {words}"
