"""A full node as a source of blocks: its best chain listed and linked, each block checked against the hash that was
asked for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from spvfilter._dataclass import dataclass, field
from spvfilter._public import deferred, public
from spvfilter.chain.rules import check_proofs
from spvfilter.errors import (
    FormatError,
    HeaderError,
    NodeAnswerError,
    NodeChainError,
    NodeNetworkError,
    NodePrunedError,
    NodeRefusedError,
    SourceError,
)
from spvfilter.hashes import sha256d
from spvfilter.kernel import check_block, header_hashes
from spvfilter.network import MAINNET, Network
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE
from spvfilter.rpc.api import ChainInfo, NodeApi
from spvfilter.rpc.credentials import Credentials
from spvfilter.rpc.endpoint import Endpoint
from spvfilter.rpc.http import HttpClient, Limits
from spvfilter.rpc.jsonrpc import JsonRpc
from spvfilter.rpc.patience import Patience
from spvfilter.rpc.rest import Rest
from spvfilter.rpc.spent import undo_record
from spvfilter.transaction import Transaction

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

T = TypeVar("T")
_MOST_CHANGES = 5  # of the chain while it is listed
_CHANGE_PAUSE_S = 2.0
_AT_ONCE = 20
"""Transactions of the mempool that are asked for together (our choice)."""


@public
@dataclass(frozen=True, slots=True)
class Listing:
    """A run of blocks of a node's best chain, as it was at one moment: their hashes, 32 bytes each in wire order, one
    after the other.
    """

    first: int
    """Height of the first block."""
    previous: bytes = field(repr=False)
    """Hash of the block before it."""
    hashes: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.hashes) // HASH_SIZE

    @property
    def last(self) -> int:
        """The height of the last block; one below the first where there is none."""
        return self.first + len(self) - 1

    def hash_at(self, height: int) -> bytes:
        """The hash of the block of a height of this run."""
        at = (height - self.first) * HASH_SIZE
        return self.hashes[at : at + HASH_SIZE]


@public
class FullNode:
    """A node of the user's own, asked by REST where it serves that, else by JSON-RPC, which needs credentials.

    Made by `FullNode.open`.

    Headers are checked for linking and proof of work, blocks for their hash, merkle root and witness commitment. That
    the chain is the best one, and what blocks spend, rests on the node's word. What `Patience` allows is asked again.
    """

    def __init__(self, api: NodeApi, endpoint: Endpoint, network: Network, patience: Patience) -> None:
        self.endpoint = endpoint
        self.network = network
        self.patience = patience
        self._api = api

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        network: Network = MAINNET,
        *,
        credentials: Credentials | None = None,
        limits: Limits | None = None,
        patience: Patience | None = None,
    ) -> AsyncIterator[FullNode]:
        """Reach a node at http://HOST:PORT or https://HOST:PORT, wait while it is starting, and check its genesis
        block.

        Raises ParameterError for a bad URL and without the extra `rpc`; NodeError.
        """
        endpoint, patience = Endpoint.parse(url), patience or Patience()
        async with aclosing(HttpClient(endpoint, limits or Limits())) as http:
            rest = Rest(http)
            api: NodeApi = rest
            try:
                info = await patience.ask(rest.info, is_known=False)
            except (NodeRefusedError, NodeAnswerError):
                if credentials is None:
                    raise
                api = JsonRpc(http, credentials)
                info = await patience.ask(api.info, is_known=False)
            genesis = await patience.ask(lambda: api.hash_at(0))
            if genesis != network.genesis_hash:
                raise NodeNetworkError(
                    f"{endpoint}: a node of {info.name}, whose genesis block is not that of {network}"
                )
            yield cls(api, endpoint, network, patience)

    @property
    def tells_spent(self) -> bool:
        """Whether it tells what blocks spend, as far as is known."""
        return self._api.tells_spent

    async def info(self) -> ChainInfo:
        """What the node says of its chain. Raises NodeError."""
        return await self._ask(self._api.info)

    async def hash_at(self, height: int) -> bytes | None:
        """The hash of the block of a height in the best chain; None if that is shorter. Raises NodeError."""
        return await self._ask(lambda: self._api.hash_at(height))

    async def block(self, digest: bytes) -> bytes:
        """The block with this hash. Raises NodeError; NodePrunedError if the node has only its header."""
        return await self._ask(lambda: self._block(digest))

    async def undo_record(self, digest: bytes, previous: bytes) -> bytes | None:
        """What the block spends, as an undo record with its check; None if the node does not tell. Raises NodeError."""
        return await self._ask(lambda: self._record(digest, previous))

    async def mempool_txs(self) -> AsyncGenerator[bytes]:
        """Yield the raw transactions of the node's mempool, in no order: a source for `Matcher.match_txs`.

        A transaction that leaves the mempool meanwhile is left out. Raises NodeError.
        """
        txids = await self._ask(self._api.mempool)
        for first in range(0, len(txids), _AT_ONCE):
            for raw in await self._ask(partial(self._transactions, txids[first : first + _AT_ONCE])):
                yield raw

    async def _transactions(self, txids: list[bytes]) -> list[bytes]:
        found = []
        for txid, raw in zip(txids, await self._api.transactions(txids), strict=True):
            if raw is None:
                continue
            try:
                is_right = Transaction.parse(raw).txid == txid
            except FormatError:
                is_right = False
            if not is_right:
                raise NodeAnswerError(f"{self.endpoint}: gives other bytes than transaction {hash_to_hex(txid)}")
            found.append(raw)
        return found

    async def listing(self, first: int = 0, last: int | None = None, from_time: int | None = None) -> Listing:
        """The best chain from height `first` on to `last` or its end, beginning with the first block that has a time or
        a later one.

        Raises NodeChainError if it changes too fast, SourceError if there is no such block, NodePrunedError if the node
        has pruned them.
        """
        for _ in range(_MOST_CHANGES):
            if (listing := await self._listed(first, last, from_time)) is not None:
                return listing
            self.patience.tell(f"{self.endpoint}: its chain changed while it was listed; listing it again")
            await self.patience.pause(_CHANGE_PAUSE_S)
        raise NodeChainError(f"{self.endpoint}: its chain changed {_MOST_CHANGES} times while it was listed")

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self.patience.ask(call)

    async def _block(self, digest: bytes) -> bytes:
        raw = await self._api.block(digest)
        await asyncio.to_thread(self.check, raw, digest)
        return raw

    def check(self, raw: bytes, digest: bytes) -> None:
        """Raise NodeAnswerError unless these are the bytes of the block with this hash."""
        name = hash_to_hex(digest)
        if sha256d(raw[:HEADER_SIZE]) != digest:
            raise NodeAnswerError(f"{self.endpoint}: gives another block than {name}, or none")
        try:
            check_block(raw)
        except FormatError as error:
            raise NodeAnswerError(f"{self.endpoint}: gives a damaged block {name}: {error}") from None

    async def _record(self, digest: bytes, previous: bytes) -> bytes | None:
        answer = await self._api.spent(digest)
        if answer is None:
            return None
        try:
            return await asyncio.to_thread(undo_record, answer, previous)
        except FormatError as error:
            raise NodeAnswerError(
                f"{self.endpoint}: what block {hash_to_hex(digest)} spends is malformed: {error}"
            ) from None

    async def _listed(self, first: int, last: int | None, from_time: int | None) -> Listing | None:
        """The same once; None if the chain changed meanwhile."""
        info = await self.info()
        last = info.height if last is None else min(last, info.height)
        if first > last:
            raise SourceError(
                f"{self.endpoint}: no block from height {first:,} on: its chain ends at height {info.height:,}"
            )
        digest = await self.hash_at(first)
        if digest is None:
            return None
        listed = _Listed(first, from_time)
        height = first
        while True:
            wanted = min(self._api.headers_at_once, last - height + 1)
            headers, hashes = await self._headers(digest, height, wanted)
            if not headers or (len(hashes) == HASH_SIZE and wanted > 1):
                return None
            listed.add(headers, hashes, skipped=int(height > first))
            height += len(hashes) // HASH_SIZE - 1
            if height == last:
                break
            digest = hashes[-HASH_SIZE:]
        listing = listed.listing()
        if not len(listing):
            raise SourceError(f"{self.endpoint}: no block of that date or later up to height {last:,}")
        if listing.first < info.prune_height:
            raise NodePrunedError(
                f"{self.endpoint}: has pruned the blocks below height {info.prune_height:,}: scan from there on"
                " (--from-height), or ask a node that has them"
            )
        return listing

    async def _headers(self, digest: bytes, height: int, count: int) -> tuple[bytes, bytes]:
        async def ask() -> tuple[bytes, bytes]:
            headers = await self._api.headers(digest, height, count)
            return headers, await asyncio.to_thread(self._checked, headers, digest, height)

        return await self._ask(ask)

    def _checked(self, headers: bytes, digest: bytes, height: int) -> bytes:
        """The hashes of headers that begin with the block asked for. Raises NodeAnswerError."""
        if len(headers) % HEADER_SIZE:
            raise NodeAnswerError(f"{self.endpoint}: {len(headers)} bytes are no headers")
        hashes = header_hashes(headers)
        if hashes[:HASH_SIZE] not in (b"", digest):
            raise NodeAnswerError(f"{self.endpoint}: gives other headers than those from {hash_to_hex(digest)} on")
        try:
            check_proofs(headers, hashes, self.network)
        except HeaderError as error:
            raise NodeAnswerError(f"{self.endpoint}: its header {height + error.index} is invalid: {error}") from None
        return hashes


class _Listed:
    """A listing in the making."""

    def __init__(self, first: int, from_time: int | None) -> None:
        self.first = first
        self.hashes = bytearray()
        self._previous = b""
        self._from_time = from_time

    def add(self, headers: bytes, hashes: bytes, skipped: int) -> None:
        """Take the next headers, but for the first `skipped`."""
        for number in range(skipped, len(hashes) // HASH_SIZE):
            if self._from_time is not None:
                header = headers[number * HEADER_SIZE : (number + 1) * HEADER_SIZE]
                if int.from_bytes(header[68:72], "little") < self._from_time:
                    self.first += 1
                    continue
                self._from_time = None
            if not self._previous:
                self._previous = headers[number * HEADER_SIZE + 4 : number * HEADER_SIZE + 36]
            self.hashes += hashes[number * HASH_SIZE :]
            return

    def listing(self) -> Listing:
        return Listing(self.first, self._previous, bytes(self.hashes))
