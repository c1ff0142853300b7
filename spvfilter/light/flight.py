"""Filtered blocks asked of a peer in flights, and its answers judged one by one. Bytes and sockets are elsewhere.

A flight is a getdata of many blocks and a ping behind it. Its pong says that all that was asked for has been answered, so what is missing
by then does not come. Within a flight the answers come in the order asked for: the peer's filter grows by what it matches, and
blocks tested in another order would have been tested with another filter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from spvfilter._dataclass import dataclass, field
from spvfilter._public import deferred, public
from spvfilter.errors import LieError, UselessPeerError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.primitives import hash_to_hex
from spvfilter.transaction import Transaction
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.wire.messages.merkleblock import MerkleBlock, Proof

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")


@public
class Lie(StrEnum):
    """The `cause` of a LieError. Of proofs and headers the errors have names of their own: ProofError, InvalidHeaderError."""

    UNASKED_BLOCK = "a block nobody asked for"
    BLOCK_OUT_OF_ORDER = "a block out of the order asked for"
    WITHHELD_TX = "a proved transaction that was not sent"
    UNPROVED_TX = "a transaction that the block's proof does not prove"
    UNASKED_TX = "a transaction nobody asked for"
    FILTERED_OUT_TX = "a transaction that the filter does not match"
    OMITTED_TX = "a transaction of ours that another peer proved"
    FALSE_BLOCK = "a block that is not what its header commits to"
    UNASKED_FILTER = "a compact filter or filter headers nobody asked for"
    FALSE_FILTER = "a compact filter that is not what its header commits to"
    FALSE_FILTER_HEADER = "a filter header that commits to a false filter"
    CONTRADICTION = "filter headers that contradict what it said before"
    MALFORMED = "a message that cannot be read"


@dataclass(slots=True)
class Flight:
    """Filtered blocks asked for together. `done` gives them in order, or raises what the peer did wrong."""

    wanted: Sequence[tuple[int, bytes]]  # height and hash, ascending
    done: asyncio.Future[list[ScannedBlock]]
    nonce: int = 0  # of the ping behind them
    blocks: list[ScannedBlock] = field(default_factory=list)
    whole: list[ScannedBlock] = field(default_factory=list)  # those that must be fetched whole: their proof cannot be relied on


@dataclass(slots=True)
class _Open:
    """A merkleblock whose transactions are on their way."""

    flight: Flight
    block: ScannedBlock
    proof: Proof
    due: set[bytes]  # txids
    raws: dict[bytes, bytes] = field(default_factory=dict)


class Flights:
    """What is under way to one peer, in the order asked for, and our copy of the filter it tests with."""

    def __init__(self) -> None:
        self.filter: Bip37Filter | None = None
        self.is_exact = True  # whether our copy has all that the peer's has; see `judge`
        self.was_inexact = False  # whether it has turned out not to have
        self._flights: deque[Flight] = deque()
        self._open: _Open | None = None

    def __len__(self) -> int:
        return len(self._flights)

    def begin(self, wanted: Sequence[tuple[int, bytes]]) -> Flight:
        """Height and hash of blocks about to be asked for, ascending."""
        flight = Flight(wanted, asyncio.get_running_loop().create_future())
        self._flights.append(flight)
        return flight

    @property
    def waiting(self) -> list[asyncio.Future[list[ScannedBlock]]]:
        return [flight.done for flight in self._flights]

    def fenced(self, nonce: int) -> None:
        """A pong came. Raises LieError, UselessPeerError for what should have come before it."""
        if self._flights and self._flights[0].nonce == nonce:
            self._land(self._flights[0])  # where that raises, it stays, and whoever waits for it is told
            self._flights.popleft()

    def merkleblock(self, message: MerkleBlock) -> None:
        """Take a merkleblock. Raises LieError, ProofError."""
        self._close()
        digest = message.header.hash
        flight = next((flight for flight in self._flights if len(flight.blocks) < len(flight.wanted)), None)
        if flight is None:
            raise LieError(f"block {hash_to_hex(digest)}", cause=Lie.UNASKED_BLOCK)
        height, expected = flight.wanted[len(flight.blocks)]
        if digest != expected:
            if not any(digest == wanted for _, wanted in flight.wanted):
                raise LieError(f"block {hash_to_hex(digest)}", cause=Lie.UNASKED_BLOCK)
            raise LieError(f"block {hash_to_hex(digest)} where {hash_to_hex(expected)} is due", cause=Lie.BLOCK_OUT_OF_ORDER)
        proof = message.verify()
        block = ScannedBlock(height, digest, total=proof.total)
        flight.blocks.append(block)
        self._open = _Open(flight, block, proof, {proved.txid for proved in proof.matched})
        if proof.ambiguous:
            flight.whole.append(block)

    def tx(self, digest: bytes, raw: bytes) -> bool:
        """Whether a transaction is one that the last merkleblock proves."""
        current = self._open
        if current is None or digest not in current.due:
            return False
        current.raws[digest] = raw
        if len(current.raws) == len(current.due):
            self._close()
        return True

    @property
    def expects_txs(self) -> bool:
        """Whether transactions of a block are due."""
        return self._open is not None and bool(self._open.proof.matched)

    def judge(self, raw: bytes) -> None:
        """Let our copy of the filter see what the peer's matched, as the peer's did. Raises LieError where ours does not match.

        A peer's filter learns from what it announces, ours from what then arrives: while something announced is missing, a
        transaction that does not match is no lie, but a reason to load the filter anew.
        """
        if self.filter is None or not self.filter.matches_tx(raw):
            if self.filter is not None and not self.is_exact:
                self.was_inexact = True
                return
            raise LieError(f"transaction {hash_to_hex(Transaction.parse(raw).txid)}", cause=Lie.FILTERED_OUT_TX)

    def _close(self) -> None:
        """The transactions of the last merkleblock are there, or never will be."""
        current, self._open = self._open, None
        if current is None:
            return
        found = []
        for proved in current.proof.matched:
            raw = current.raws.get(proved.txid)
            if raw is None:
                where = f"{hash_to_hex(proved.txid)} of block {current.block.height}"
                raise LieError(f"transaction {where}", cause=Lie.WITHHELD_TX)
            self.judge(raw)
            found.append(FoundTx(proved.position, raw))
        current.block.txs = found
        if not current.proof.ambiguous and not current.proof.trusted_with(tx.raw for tx in found):
            current.flight.whole.append(current.block)

    def _land(self, flight: Flight) -> None:
        self._close()
        if len(flight.blocks) < len(flight.wanted):
            height, digest = flight.wanted[len(flight.blocks)]
            raise UselessPeerError(f"does not send block {height}, {hash_to_hex(digest)}, of the chain it told")
        if not flight.done.done():
            flight.done.set_result(flight.blocks)
