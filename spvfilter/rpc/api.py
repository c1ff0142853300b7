"""What is asked of a node, whichever way it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.errors import NodeAnswerError
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE, MAX_BLOCK_SIZE
from spvfilter.rpc.endpoint import Endpoint

MOST_BLOCKS = 5_000_000  # of a chain: 95 years
SMALL_ANSWER_SIZE = 1 << 20  # bytes
BLOCK_ANSWER_SIZE = MAX_BLOCK_SIZE
MEMPOOL_ANSWER_SIZE = 200_000_000  # bytes: 3 million txids, more than a mempool of 300 MB has (our choice)
SPENT_ANSWER_SIZE = (
    32_000_000  # bytes of what a block spends: the 24,390 inputs that fit into it, 1.3 kB each; blocks have some 0.2 MB
)


@public
@dataclass(frozen=True, slots=True)
class ChainInfo:
    """What a node says of its chain (getblockchaininfo)."""

    name: str
    """Main, test, testnet4, signet or regtest, as the node puts it."""
    height: int
    """Of its best block."""
    best: bytes
    """Its hash, wire order."""
    prune_height: int
    """The height from which on it has blocks; 0 if it does not prune."""


@public
class NodeApi(Protocol):
    """One way to ask a node. Hashes have 32 bytes in wire order. All raise NodeError."""

    headers_at_once: int
    """That `headers` gives at most."""
    tells_spent: bool
    """As far as is known; once False, it stays so."""

    async def info(self) -> ChainInfo:
        """What the node says of its chain."""

    async def hash_at(self, height: int) -> bytes | None:
        """The hash of the block of a height in the best chain; None if that is shorter."""

    async def headers(self, first: bytes, height: int, count: int) -> bytes:
        """At most `count` headers of the best chain from the block `first` of that height on; none if it is not in the
        best chain.
        """

    async def block(self, digest: bytes) -> bytes:
        """A block, which is not checked. Raises NodePrunedError if the node has only its header."""

    async def spent(self, digest: bytes) -> bytes | None:
        """The outputs that a block spends, in the format of `spvfilter.rpc.spent`; None if the node does not tell."""

    async def mempool(self) -> list[bytes]:
        """The txids of the transactions in the node's mempool, in no order."""

    async def transactions(self, txids: Sequence[bytes]) -> list[bytes | None]:
        """The raw transactions with these txids, which are not checked; None where the mempool has none."""


def parsed_info(found: object, endpoint: Endpoint) -> ChainInfo:
    """From the object that getblockchaininfo gives. Raises NodeAnswerError."""
    if not isinstance(found, dict):
        raise NodeAnswerError(f"{endpoint}: what it says of its chain is no object")
    name, height, best, pruned = (
        found.get("chain"),
        found.get("blocks"),
        found.get("bestblockhash"),
        found.get("pruned"),
    )
    first = found.get("pruneheight", 0) if pruned is True else 0
    if not isinstance(name, str) or not name.isascii() or not name.isalnum() or len(name) > 40:
        raise NodeAnswerError(f"{endpoint}: what it says of its chain has no name of it")
    if type(height) is not int or not 0 <= height < MOST_BLOCKS:
        raise NodeAnswerError(f"{endpoint}: says that its chain has a height that none can have")
    return ChainInfo(
        name, height, parsed_hash(best, endpoint), first if type(first) is int and 0 <= first <= height + 1 else 0
    )


def parsed_hash(text: object, endpoint: Endpoint) -> bytes:
    """A hash in display order as JSON has it. Raises NodeAnswerError."""
    raw = parsed_hex(text, HASH_SIZE, endpoint)
    if len(raw) != HASH_SIZE:
        raise NodeAnswerError(f"{endpoint}: a hash of {len(raw)} bytes")
    return raw[::-1]


def parsed_txids(found: object, endpoint: Endpoint) -> list[bytes]:
    """From the array or the object that getrawmempool gives. Raises NodeAnswerError."""
    if not isinstance(found, Iterable) or isinstance(found, str):
        raise NodeAnswerError(f"{endpoint}: what it says of its mempool is no list of txids")
    return [parsed_hash(each, endpoint) for each in found]


def parsed_hex(text: object, most: int, endpoint: Endpoint) -> bytes:
    """At most `most` bytes in hex as JSON has them. Raises NodeAnswerError."""
    if not isinstance(text, str) or len(text) > 2 * most:
        raise NodeAnswerError(f"{endpoint}: not at most {most:,} bytes in hex")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise NodeAnswerError(f"{endpoint}: not hex") from None


def lacking(digest: bytes, endpoint: Endpoint, words: str) -> str:
    """A sentence about a block that a node does not have."""
    return f"{endpoint}: does not have block {hash_to_hex(digest)}: {words}"
