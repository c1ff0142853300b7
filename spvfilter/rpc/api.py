"""The interface for requests to a full node, over REST or JSON-RPC."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from spvfilter._public import public
from spvfilter.errors import NodeAnswerError
from spvfilter.primitives import TxOut, hash_to_hex
from spvfilter.protocol import HASH_SIZE, MAX_BLOCK_SIZE, MAX_SCRIPT_SIZE
from spvfilter.rpc.endpoint import Endpoint

MOST_BLOCKS = 5_000_000  # Longest chain that an answer may claim, in blocks (our choice): 95 years.
SMALL_ANSWER_SIZE = 1 << 20  # Largest answer without a block, in bytes (our choice).
BLOCK_ANSWER_SIZE = MAX_BLOCK_SIZE  # Largest answer with a block, in bytes.
# Largest size, in bytes, of the outputs that a block spends (our choice). At most 24,390 inputs fit into a block; this
# allows 1.3 kB for each. For a typical block, it is 0.2 MB.
SPENT_ANSWER_SIZE = 32_000_000
# Largest block in JSON with the outputs that it spends, in bytes (our choice): 4 MB become at most 40 MB.
DETAILS_ANSWER_SIZE = 200_000_000
# Largest list of txids in a mempool, in bytes (our choice): 3 million txids, more than a 300 MB mempool contains.
MEMPOOL_ANSWER_SIZE = 200_000_000


@public
@dataclass(frozen=True, slots=True)
class ChainInfo:
    """A description of a node's chain, from the RPC call getblockchaininfo."""

    name: str
    """The network, as Core names it: `main`, `test`, `testnet4`, `signet` or `regtest`."""
    height: int
    """Height of the best block."""
    best: bytes
    """Hash of the best block, 32 bytes in wire order."""
    prune_height: int
    """Height of the first block that the node stores, or 0 if the node does not prune blocks."""
    headers: int = 0
    """Height of the best header, at least `height`. Blocks between the two have not been downloaded yet."""
    is_initial_download: bool = False
    """True if the node is in initial block download, so its chain may end early."""
    signet_challenge: bytes | None = None
    """The challenge of the node's signet. None on other networks, or if the node does not report it."""

    @property
    def best_hex(self) -> str:
        """The `best` field in hex, as block explorers show it."""
        return hash_to_hex(self.best)


@public
class NodeApi(Protocol):
    """Requests to a node over one of its interfaces, REST or JSON-RPC.

    Hashes are 32 bytes in wire order. All methods raise NodeError if there is no valid answer.
    """

    headers_at_once: int
    """Largest number of headers that `headers` returns."""
    tells_spent: bool
    """False if the node is known not to support `spent`; otherwise True."""

    async def info(self) -> ChainInfo:
        """Request the description of the node's chain."""

    async def hash_at(self, height: int) -> bytes | None:
        """Request the hash of the best chain's block at a height. Returns None if the chain is shorter."""

    async def headers(self, first: bytes, height: int, count: int) -> bytes:
        """Request up to `count` headers of the best chain, starting with block `first` at `height`.

        The result is empty if `first` is not in the best chain.
        """

    async def block(self, digest: bytes) -> bytes:
        """Request a block by its hash, and return it unchecked.

        Raises NodePrunedError if the node has only the header of the block.
        """

    async def spent(self, digest: bytes) -> bytes | None:
        """Request the outputs that a block spends, and return them in the format of Core's REST call spenttxouts.

        Returns None if the node does not support this request.
        """

    async def details(self, digest: bytes) -> object:
        """Request a block by its hash, as JSON that includes the outputs it spends, and return it unchecked.

        This takes the node about ten times as long as `spent`.
        """

    async def coins(self, outpoints: Sequence[bytes]) -> list[TxOut | None]:
        """Request unspent outputs of the best chain, even if the mempool spends them.

        The result contains None for each outpoint that is spent or unknown.
        """

    async def mempool(self) -> list[bytes]:
        """Request the txids of the transactions in the node's mempool, in no particular order."""

    async def transactions(self, txids: Sequence[bytes]) -> list[bytes | None]:
        """Request the raw transactions with these txids, and return them unchecked.

        The result contains None for each txid that is not in the mempool.
        """


def parsed_info(found: object, endpoint: Endpoint) -> ChainInfo:
    """Parse the answer to getblockchaininfo. Raises NodeAnswerError if it is malformed."""
    if not isinstance(found, dict):
        raise NodeAnswerError(f"{endpoint}: its chain information is not a JSON object")
    name, height, best, pruned = (
        found.get("chain"),
        found.get("blocks"),
        found.get("bestblockhash"),
        found.get("pruned"),
    )
    first = found.get("pruneheight", 0) if pruned is True else 0
    if not isinstance(name, str) or not name.isascii() or not name.isalnum() or len(name) > 40:
        raise NodeAnswerError(f"{endpoint}: its chain information does not name the network")
    if type(height) is not int or not 0 <= height < MOST_BLOCKS:
        raise NodeAnswerError(f"{endpoint}: the height of its chain must be a number from 0 to {MOST_BLOCKS - 1:,}")
    challenge, headers = found.get("signet_challenge"), found.get("headers")
    return ChainInfo(
        name,
        height,
        parsed_hash(best, endpoint),
        first if type(first) is int and 0 <= first <= height + 1 else 0,
        headers if type(headers) is int and height <= headers < MOST_BLOCKS else height,
        found.get("initialblockdownload") is True,
        None if challenge is None else parsed_hex(challenge, MAX_SCRIPT_SIZE, endpoint),
    )


def parsed_hash(text: object, endpoint: Endpoint) -> bytes:
    """Parse a hash in display order. Raises NodeAnswerError if it is malformed."""
    raw = parsed_hex(text, HASH_SIZE, endpoint)
    if len(raw) != HASH_SIZE:
        raise NodeAnswerError(f"{endpoint}: a hash must be {HASH_SIZE} bytes long, not {len(raw)}")
    return raw[::-1]


def parsed_txids(found: object, endpoint: Endpoint) -> list[bytes]:
    """Parse the array or the object that getrawmempool returns. Raises NodeAnswerError if it is malformed."""
    if not isinstance(found, Iterable) or isinstance(found, str):
        raise NodeAnswerError(f"{endpoint}: its mempool listing is not a JSON array or object of txids")
    return [parsed_hash(each, endpoint) for each in found]


def parsed_hex(text: object, most: int, endpoint: Endpoint) -> bytes:
    """Parse up to `most` bytes in hex. Raises NodeAnswerError if the hex is malformed or longer."""
    if not isinstance(text, str) or len(text) > 2 * most:
        raise NodeAnswerError(f"{endpoint}: expected at most {most:,} bytes in hex")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise NodeAnswerError(f"{endpoint}: the answer is not hex") from None


def lacking(digest: bytes, endpoint: Endpoint, words: str) -> str:
    """Return a message about a block that a node does not have."""
    return f"{endpoint}: does not have block {hash_to_hex(digest)}: {words}"
