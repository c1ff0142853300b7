"""A full node as a source of its best chain's blocks. Each block is checked against the requested hash."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TypeVar

from spvfilter._public import public
from spvfilter.chain.rules import check_proofs
from spvfilter.errors import (
    FormatError,
    HeaderError,
    NodeAnswerError,
    NodeChainError,
    NodeNetworkError,
    NodePrunedError,
    NodeRefusedError,
    NodeRpcError,
    SourceError,
)
from spvfilter.hashes import sha256d
from spvfilter.kernel import check_block, header_hashes
from spvfilter.network import MAINNET, Network
from spvfilter.primitives import TxOut, hash_to_hex
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE
from spvfilter.rpc.api import ChainInfo, NodeApi
from spvfilter.rpc.credentials import Credentials
from spvfilter.rpc.endpoint import Endpoint
from spvfilter.rpc.http import HttpClient, RpcLimits
from spvfilter.rpc.jsonrpc import JsonRpc
from spvfilter.rpc.patience import Patience
from spvfilter.rpc.prevouts import spent_of_details
from spvfilter.rpc.rest import Rest
from spvfilter.rpc.spent import record_of_outputs, undo_record
from spvfilter.transaction import Transaction

T = TypeVar("T")
_TIME = struct.Struct("<68xI8x")  # of a header
_MOST_CHANGES = 5  # attempts to list a chain that keeps changing (our choice)
_CHANGE_PAUSE_S = 2.0  # seconds between two attempts
_AT_ONCE = 20  # number of mempool transactions to request at a time (our choice)


_BEHIND = 10
"""Most headers above the tip of a node that is merely busy with new blocks (our choice)."""


@public
@dataclass(frozen=True, slots=True)
class Listing:
    """Hashes of successive blocks in a node's best chain at one point in time."""

    first: int
    """Height of the first listed block."""
    previous: bytes = field(repr=False)
    """Hash of the parent of the first listed block, 32 bytes in wire order."""
    hashes: bytes = field(repr=False)
    """Concatenated hashes of all listed blocks, 32 bytes each in wire order."""
    missing: tuple[tuple[int, int], ...] = ()
    """Requested ranges of heights (first, last) whose blocks the node does not have."""

    def __len__(self) -> int:
        return len(self.hashes) // HASH_SIZE

    @property
    def last(self) -> int:
        """Height of the last listed block, or `first - 1` if no block is listed."""
        return self.first + len(self) - 1

    def hash_at(self, height: int) -> bytes:
        """Return the hash of the block at a height from `first` to `last`."""
        at = (height - self.first) * HASH_SIZE
        return self.hashes[at : at + HASH_SIZE]


@public
class FullNode:
    """A full node that you trust, such as your own. Connect to one with `FullNode.open`.

    Requests use REST if the node serves it, otherwise JSON-RPC, which needs credentials. Failed requests are retried as
    `Patience` allows.

    Headers are checked for links and proof of work. Blocks are checked for hash, merkle root and witness commitment.
    The node is trusted for two facts: which chain is best, and which outputs a block spends.
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
        limits: RpcLimits | None = None,
        patience: Patience | None = None,
    ) -> AsyncIterator[FullNode]:
        """Connect to a node, wait until it has started, and check its genesis block.

        Args:
            url: http://HOST:PORT or https://HOST:PORT.
            network: The node's expected network.
            credentials: User and password for JSON-RPC, which is used if the node does not serve REST. They are checked
                either way.
            limits: Number of connections, and timeouts.
            patience: How often, and for how long, to retry a failed request.

        Raises:
            ParameterError: The URL is malformed, or the `rpc` extra is not installed.
            NodeError: The node cannot be reached, refuses the credentials, or is on a different network.
        """
        endpoint, patience = Endpoint.parse(url), patience or Patience()
        async with aclosing(HttpClient(endpoint, limits or RpcLimits())) as http:
            rest = Rest(http)
            api: NodeApi = rest
            try:
                info = await patience.ask(rest.info, is_known=False)
            except (NodeRefusedError, NodeAnswerError):
                if credentials is None:
                    raise
                api = JsonRpc(http, credentials)
                info = await patience.ask(api.info, is_known=False)
            else:
                if credentials is not None:  # REST needs none, but wrong ones must not seem right
                    with suppress(NodeAnswerError, NodeRpcError):
                        await patience.ask(JsonRpc(http, credentials).info)
            genesis = await patience.ask(lambda: api.hash_at(0))
            if genesis != network.genesis_hash:
                raise NodeNetworkError(
                    f"{endpoint}: the node is on {info.name}: its genesis block is not that of {network}"
                )
            if info.signet_challenge not in (None, network.signet_challenge):
                raise NodeNetworkError(
                    f"{endpoint}: the node is on a signet with a different challenge, not on {network}"
                )
            yield cls(api, endpoint, network, patience)

    @property
    def tells_spent(self) -> bool:
        """False if the node is known not to support `undo_record`; otherwise True."""
        return self._api.tells_spent

    async def info(self) -> ChainInfo:
        """Request the description of the node's chain. Raises NodeError if there is no valid answer."""
        return await self._ask(self._api.info)

    async def hash_at(self, height: int) -> bytes | None:
        """Request the hash of the best chain's block at a height; return None if the chain is shorter.

        Raises NodeError if there is no valid answer.
        """
        return await self._ask(lambda: self._api.hash_at(height))

    async def block(self, digest: bytes) -> bytes:
        """Request the block with this hash, and check it.

        Raises NodePrunedError if the node has only the header. Raises NodeError if there is no valid answer.
        """
        return await self._ask(lambda: self._block(digest))

    async def undo_record(self, digest: bytes, previous: bytes, *, by_details: bool = False) -> bytes | None:
        """Request the outputs that a block spends, and return them as an undo record with its checksum.

        Returns None if the node does not support this request. With `by_details`, the block is then requested as JSON
        instead, which takes about ten times as long. `previous` is the hash of the block's parent. Raises NodeError if
        there is no valid answer.
        """
        record = await self._ask(lambda: self._record(digest, previous))
        if record is None and by_details:
            record = await self._ask(lambda: self._record_of_details(digest, previous))
        return record

    async def outputs_spent_by(self, raw: bytes) -> list[TxOut] | None:
        """Request the outputs that an unconfirmed transaction spends, in the order of its inputs.

        They are looked up in the best chain, then in the node's mempool. Returns None if any of them is in neither.

        Raises:
            FormatError: The transaction is malformed.
            NodeError: The node did not give a valid answer.
        """
        points = Transaction.parse(raw).inputs
        found = await self._ask(lambda: self._api.coins(points))
        lacking = {point[:HASH_SIZE] for point, coin in zip(points, found, strict=True) if coin is None}
        parents = await self._parents(list(lacking)) if lacking else {}
        outputs: list[TxOut] = []
        for point, coin in zip(points, found, strict=True):
            if coin is None:
                index, created = int.from_bytes(point[HASH_SIZE:], "little"), parents.get(point[:HASH_SIZE], ())
                if index >= len(created):
                    return None
                coin = created[index]
            outputs.append(coin)
        return outputs

    async def _parents(self, txids: list[bytes]) -> dict[bytes, tuple[TxOut, ...]]:
        """Return the outputs of those transactions that are in the mempool, keyed by txid."""
        raws = [
            raw
            for at in range(0, len(txids), _AT_ONCE)
            for raw in await self._ask(partial(self._transactions, txids[at : at + _AT_ONCE]))
        ]
        parsed = map(Transaction.parse, raws)
        return {each.txid: each.outputs for each in parsed}

    async def mempool_txs(self, *, poll_s: float | None = None) -> AsyncGenerator[bytes]:
        """Yield the raw transactions in the node's mempool, in any order: a source for `Matcher.match_txs`.

        A transaction that leaves the mempool before it is fetched is skipped.

        Args:
            poll_s: Seconds after which the mempool is listed again, to yield new transactions forever. By default, it
                is listed once. `TxNotices` (ZMQ) has no such delay.

        Raises:
            NodeError: The node did not give a valid answer.
        """
        known: frozenset[bytes] = frozenset()
        while True:
            listed = await self._ask(self._api.mempool)
            txids = [txid for txid in listed if txid not in known]
            for first in range(0, len(txids), _AT_ONCE):
                for raw in await self._ask(partial(self._transactions, txids[first : first + _AT_ONCE])):
                    yield raw
            if poll_s is None:
                return
            known = frozenset(listed)
            await self.patience.pause(poll_s)

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
                raise NodeAnswerError(f"{self.endpoint}: returned bytes that are not transaction {hash_to_hex(txid)}")
            found.append(raw)
        return found

    async def listing(
        self,
        first: int = 0,
        last: int | None = None,
        from_time: int | None = None,
        to_time: int | None = None,
        *,
        skip_pruned: bool = False,
    ) -> Listing:
        """List the blocks of the best chain.

        Args:
            first: Height of the first block.
            last: Height of the last block; by default, the tip.
            from_time: Start at the first block whose time is at least this (Unix time).
            to_time: Stop before the first block whose time is later than this (Unix time).
            skip_pruned: True to start with the first block that the node stores. If earlier blocks were requested, by
                time or by a height above 0, the `missing` field lists them.

        Raises:
            NodeChainError: The chain changed five times during the listing.
            SourceError: The range contains no block of the chain.
            NodePrunedError: The node has pruned some of the blocks.
            NodeError: The node did not give a valid answer.
        """
        for _ in range(_MOST_CHANGES):
            listed = _Listed(first, from_time, to_time)
            if (listing := await self._listed(listed, last, skip_pruned)) is not None:
                return listing
            self.patience.tell(f"{self.endpoint}: its chain changed during the listing; listing it again")
            await self.patience.pause(_CHANGE_PAUSE_S)
        raise NodeChainError(f"{self.endpoint}: its chain changed {_MOST_CHANGES} times during the listing")

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self.patience.ask(call)

    async def _block(self, digest: bytes) -> bytes:
        raw = await self._api.block(digest)
        await asyncio.to_thread(self.check, raw, digest)
        return raw

    def check(self, raw: bytes, digest: bytes) -> None:
        """Raise NodeAnswerError unless `raw` is the block with this hash."""
        name = hash_to_hex(digest)
        if sha256d(raw[:HEADER_SIZE]) != digest:
            raise NodeAnswerError(f"{self.endpoint}: the answer is not block {name}")
        try:
            check_block(raw)
        except FormatError as error:
            raise NodeAnswerError(f"{self.endpoint}: the block {name} in the answer is damaged: {error}") from None

    async def _record(self, digest: bytes, previous: bytes) -> bytes | None:
        answer = await self._api.spent(digest)
        if answer is None:
            return None
        try:
            return await asyncio.to_thread(undo_record, answer, previous)
        except FormatError as error:
            raise NodeAnswerError(
                f"{self.endpoint}: the list of outputs that block {hash_to_hex(digest)} spends is malformed: {error}"
            ) from None

    async def _record_of_details(self, digest: bytes, previous: bytes) -> bytes | None:
        found = await self._api.details(digest)

        def converted() -> bytes | None:
            spent = spent_of_details(found, self.endpoint)
            return None if spent is None else record_of_outputs(spent, previous)

        try:
            return await asyncio.to_thread(converted)
        except FormatError as error:
            raise NodeAnswerError(
                f"{self.endpoint}: the details of block {hash_to_hex(digest)} are malformed: {error}"
            ) from None

    async def _listed(self, listed: _Listed, last: int | None, skip_pruned: bool) -> Listing | None:
        """Try once to list the blocks. Returns None if the chain changed during the attempt."""
        first = listed.first
        info = await self.info()
        above = _missing_above(info, last)
        last = info.height if last is None else min(last, info.height)
        if first > last:
            raise SourceError(
                f"{self.endpoint}: no block at height {first:,}: the chain ends at height {info.height:,}"
            )
        digest = await self.hash_at(first)
        if digest is None:
            return None
        height = first
        while True:
            wanted = min(self._api.headers_at_once, last - height + 1)
            headers, hashes = await self._headers(digest, height, wanted)
            if not headers or (len(hashes) == HASH_SIZE and wanted > 1):
                return None
            listed.add(headers, hashes, skipped=int(height > first))
            height += len(hashes) // HASH_SIZE - 1
            if height == last or listed.is_ended:
                break
            digest = hashes[-HASH_SIZE:]
        listing = listed.listing()
        if not len(listing):
            raise SourceError(f"{self.endpoint}: no block up to height {last:,} lies within the dates")
        above = () if listed.is_ended else above
        if skip_pruned and listing.first < info.prune_height <= listing.last:
            asks = first > 0 or listed.has_time
            below = ((listing.first, info.prune_height - 1),) if asks else ()
            cut = (info.prune_height - listing.first) * HASH_SIZE
            hashes = listing.hashes
            return Listing(info.prune_height, hashes[cut - HASH_SIZE : cut], hashes[cut:], (*below, *above))
        if listing.first < info.prune_height:
            raise NodePrunedError(
                f"{self.endpoint}: the node has pruned the blocks below height {info.prune_height:,}: start the scan"
                " at that height (--from-height), or use a node that has them"
            )
        return replace(listing, missing=above)

    async def _headers(self, digest: bytes, height: int, count: int) -> tuple[bytes, bytes]:
        async def ask() -> tuple[bytes, bytes]:
            headers = await self._api.headers(digest, height, count)
            return headers, await asyncio.to_thread(self._checked, headers, digest, height)

        return await self._ask(ask)

    def _checked(self, headers: bytes, digest: bytes, height: int) -> bytes:
        """Check headers, and return their hashes.

        Raises NodeAnswerError if the first header is not the header of the requested block.
        """
        if len(headers) % HEADER_SIZE:
            raise NodeAnswerError(
                f"{self.endpoint}: {len(headers)} bytes is not a whole number of {HEADER_SIZE}-byte headers"
            )
        hashes = header_hashes(headers)
        if hashes[:HASH_SIZE] not in (b"", digest):
            raise NodeAnswerError(f"{self.endpoint}: the headers do not begin with block {hash_to_hex(digest)}")
        try:
            check_proofs(headers, hashes, self.network)
        except HeaderError as error:
            raise NodeAnswerError(f"{self.endpoint}: its header {height + error.index} is invalid: {error}") from None
        return hashes


def _missing_above(info: ChainInfo, last: int | None) -> tuple[tuple[int, int], ...]:
    """Return the heights above the tip up to `last`, or up to the node's best header if the node is far behind it."""
    if last is None and (info.is_initial_download or info.headers > info.height + _BEHIND):
        last = info.headers
    return () if last is None or last <= info.height else ((info.height + 1, last),)


class _Listed:
    """A listing that is not complete yet."""

    def __init__(self, first: int, from_time: int | None, to_time: int | None) -> None:
        self.first = first
        self.is_ended = False  # True if a block has a time after the range
        self.hashes = bytearray()
        self._previous = b""
        self._from_time = from_time
        self._to_time = to_time
        self.has_time = from_time is not None  # True if the listing begins at a time

    def add(self, headers: bytes, hashes: bytes, skipped: int) -> None:
        """Add the next headers and their hashes to the listing, except the first `skipped` of them."""
        end = len(hashes) // HASH_SIZE
        if self._to_time is not None:
            times = islice(_TIME.iter_unpack(headers), skipped, None)
            end = next((number for number, (time,) in enumerate(times, skipped) if time > self._to_time), end)
            self.is_ended = end < len(hashes) // HASH_SIZE
        for number in range(skipped, end):
            if self._from_time is not None:
                header = headers[number * HEADER_SIZE : (number + 1) * HEADER_SIZE]
                if int.from_bytes(header[68:72], "little") < self._from_time:
                    self.first += 1
                    continue
                self._from_time = None
            if not self._previous:
                self._previous = headers[number * HEADER_SIZE + 4 : number * HEADER_SIZE + 36]
            self.hashes += hashes[number * HASH_SIZE : end * HASH_SIZE]
            return

    def listing(self) -> Listing:
        return Listing(self.first, self._previous, bytes(self.hashes))
