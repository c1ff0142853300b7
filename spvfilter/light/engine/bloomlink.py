"""Filtered blocks asked of one peer in flights, and its answers judged one by one (BIP-37).

A flight is a getdata of many blocks and a ping behind it. The pong says that everything asked for has been answered, so
what is missing then does not come. Within a flight the answers come in the order asked for: the peer's filter grows by
what it matches, and blocks tested in another order would have been tested with another filter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spvfilter.errors import LieError, UselessPeerError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.light.lies import Lie
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import MAX_BLOCK_WEIGHT
from spvfilter.transaction import Transaction
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.wallet.validity import are_amounts
from spvfilter.wire.messages.merkleblock import MerkleBlock, Proof

MAX_DOUBTFUL_SIZE = (
    1_000_000  # bytes of transactions in blocks that our copy of a filter does not match, until it is loaded anew; ours
)

Landed = Callable[[list[ScannedBlock], list[ScannedBlock]], None]  # the blocks; those that must be fetched whole


@dataclass(slots=True, eq=False)
class Flight:
    """Filtered blocks asked for together."""

    wanted: Sequence[tuple[int, bytes]]
    """Height and hash, ascending."""
    then: Landed
    blocks: list[ScannedBlock] = field(default_factory=list)
    whole: list[ScannedBlock] = field(default_factory=list)
    """Those whose proof cannot be relied on."""


@dataclass(slots=True)
class _Open:
    """A merkleblock whose transactions are on their way."""

    flight: Flight
    block: ScannedBlock
    proof: Proof
    due: set[bytes]
    """Txids."""
    raws: dict[bytes, bytes] = field(default_factory=dict)
    """Without witness."""
    size: int = 0
    """Bytes of these, with witness."""


class BloomLink:
    """What one peer was asked by BIP-37, and our copy of the filter that it tests with."""

    def __init__(self) -> None:
        self.filter: Bip37Filter | None = None
        self.known: Mapping[bytes, None] = {}  # elements that the filter has
        self.epoch: int = -1  # of the watch list that the filter was made of
        self.must_reload = True  # whether the peer needs a new filter before it is asked anything more
        self.covered: int = -1  # height up to which its filter has what blocks taught
        # announced transactions (txid or wtxid) that it matched and that have not come
        self.unanswered: set[bytes] = set()
        self.misses_txs: bool = (
            False  # since it was loaded, something announced was not asked for, not sent, or matched by another filter
        )
        self.loading: int = 0  # filters that it was given and may not have yet
        self._of_another: set[bytes] = set()  # those of the unanswered that a filter before this one may have matched
        self.is_in_doubt: bool = False  # whether its filter turned out to have more than our copy of it
        self._doubtful_size = 0  # bytes of what blocks had that our copy does not match
        # height up to which it was asked for what is owed: what is joined then is not asked for over and over
        self.asked_to: int = -1
        self.is_reloading = (
            False  # whether it has been given the filter anew for what it did, and has not dealt with that yet
        )
        self._flights: deque[Flight] = deque()
        self._open: _Open | None = None

    @property
    def flights(self) -> int:
        """The number of flights under way."""
        return len(self._flights)

    @property
    def expects_txs(self) -> bool:
        """Whether transactions of a block are due."""
        return self._open is not None

    def load(self, made: Bip37Filter, epoch: int, covered: int, known: Mapping[bytes, None]) -> None:
        """The peer is given a filter of these elements; what is under way is tested with the one before."""
        self.asked_to = self.asked_to if epoch == self.epoch else -1
        self.filter, self.epoch, self.covered, self.known = made.copy(), epoch, covered, known
        self.misses_txs, self.is_in_doubt, self._doubtful_size = bool(self.unanswered), False, 0
        self._of_another |= self.unanswered
        self.loading += 1

    def announced(self, tx_hashes: Collection[bytes]) -> None:
        """It has matched transactions (txid or wtxid), which it is asked for."""
        self.unanswered.update(tx_hashes)
        if self.loading:
            self._of_another.update(tx_hashes)

    def not_found(self, tx_hash: bytes) -> None:
        """It does not have a transaction any more, of those that it announced."""
        if tx_hash in self.unanswered:
            self.unanswered.discard(tx_hash)
            self._of_another.discard(tx_hash)
            self.misses_txs = True

    def came(self, tx: Transaction) -> None:
        """What it announced has come. Raises LieError, UselessPeerError as `judge`.

        What a filter before may have matched, or none, teaches our copy nothing: the peer's may have learned it before
        it was given this one. It would be taken for a lie later that it leaves out what spends from it.
        """
        ids = {tx.txid, tx.wtxid}
        was_matched = not ids.isdisjoint(self.unanswered)
        self.unanswered -= ids
        if was_matched and self._of_another.isdisjoint(ids):
            self.judge(tx.raw, in_block=False)
        else:
            self._of_another -= ids
            self.misses_txs = True

    def begin(self, flight: Flight) -> None:
        """A flight is asked for."""
        self._flights.append(flight)

    def land(self, flight: Flight) -> None:
        """The pong behind a flight came. Raises LieError, UselessPeerError for what should have come before it."""
        self._close()
        if len(flight.blocks) < len(flight.wanted):
            height, block_hash = flight.wanted[len(flight.blocks)]
            raise UselessPeerError(f"did not send block {height}, {hash_to_hex(block_hash)}, which is in its own chain")
        self._flights.remove(flight)
        flight.then(flight.blocks, flight.whole)

    def merkleblock(self, message: MerkleBlock) -> Flight:
        """Take a merkleblock; the flight that it belongs to. Raises LieError, ProofError, UselessPeerError."""
        self._close()
        block_hash = message.header.hash
        flight = next((flight for flight in self._flights if len(flight.blocks) < len(flight.wanted)), None)
        if flight is None:
            raise LieError(f"block {hash_to_hex(block_hash)}", cause=Lie.UNASKED_BLOCK)
        height, expected = flight.wanted[len(flight.blocks)]
        if block_hash != expected:
            if not any(block_hash == wanted for _, wanted in flight.wanted):
                raise LieError(f"block {hash_to_hex(block_hash)}", cause=Lie.UNASKED_BLOCK)
            raise LieError(
                f"block {hash_to_hex(block_hash)} instead of {hash_to_hex(expected)}", cause=Lie.BLOCK_OUT_OF_ORDER
            )
        proof = message.verify()
        block = ScannedBlock(height, block_hash, total=proof.total, time=message.header.time)
        flight.blocks.append(block)
        if proof.matched:
            self._open = _Open(flight, block, proof, {proved.txid for proved in proof.matched})
        if proof.ambiguous:
            flight.whole.append(block)
        return flight

    def tx(self, tx: Transaction) -> bool:
        """Take a transaction; whether the last merkleblock proves it.

        Raises LieError for more than a block has room for.

        A txid does not show the witness, of which a peer may invent as much as a message holds, for each transaction of
        a block. It is not kept: Core sends none with a filtered block.
        """
        current = self._open
        if current is None or tx.txid not in current.due:
            return False
        if tx.txid in current.raws:
            return True
        current.size += len(tx.raw)
        if current.size > MAX_BLOCK_WEIGHT:
            told = (
                f"{hash_to_hex(tx.txid)} and others of block {current.block.height}: {current.size:,} bytes, more than"
                " a block can contain"
            )
            raise LieError(f"transaction {told}", cause=Lie.IMPOSSIBLE_TX)
        current.raws[tx.txid] = tx.stripped
        if len(current.raws) == len(current.due):
            self._close()
        return True

    def judge(self, raw: bytes, *, in_block: bool) -> None:
        """Update our copy of the filter with a transaction that the peer's matched.

        Raises LieError, UselessPeerError if ours does not.

        A peer's filter learns from what it announces, ours from what then arrives. While something announced before is
        missing, a transaction that does not match is no lie, but a reason to load the filter anew, unless they are
        many: what a missing transaction teaches a filter matches few others. What is outstanding when an announced
        transaction arrives was announced after it.
        """
        if self.filter is not None and self.filter.matches_tx(raw):
            return
        if self.filter is not None and (self.misses_txs or (in_block and self.unanswered)):
            self.is_in_doubt = True
            self._doubtful_size += len(raw) if in_block else 0
            if self._doubtful_size > MAX_DOUBTFUL_SIZE:
                raise UselessPeerError(
                    f"sent {self._doubtful_size:,} bytes of transactions that the filter does not match"
                )
            return
        raise LieError(f"transaction {hash_to_hex(Transaction.parse(raw).txid)}", cause=Lie.FILTERED_OUT_TX)

    def teach(self, elements: Sequence[bytes]) -> list[bytes]:
        """Those of the elements that the peer's filter lacks; our copy has them from now on."""
        assert self.filter is not None
        missing = [element for element in elements if element not in self.filter]
        for element in missing:
            self.filter.insert(element)
        return missing

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
            self.judge(raw, in_block=True)
            if not are_amounts(raw, Transaction.parse(raw).span):
                where = f"{hash_to_hex(proved.txid)} of block {current.block.height}"
                raise LieError(f"the output values of transaction {where} are out of range", cause=Lie.IMPOSSIBLE_TX)
            found.append(FoundTx(proved.position, raw))
        current.block.txs = found
        if not current.proof.ambiguous and not current.proof.trusted_with(tx.raw for tx in found):
            current.flight.whole.append(current.block)
