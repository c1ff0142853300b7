"""Requests to one peer for filtered blocks, sent in flights, and the checks of its answers (BIP-37).

A flight is a getdata for many blocks, followed by a ping. The pong means that the peer has answered the whole getdata,
so a missing block will not arrive later.

The answers must arrive in the order of the request. The peer's filter grows with each match, so a different order would
mean a different filter for each block.
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
from spvfilter.store.validity import are_amounts
from spvfilter.transaction import Transaction
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.wire.merkle import partial_branches
from spvfilter.wire.messages.merkleblock import MerkleBlock, Proof

# Limit on the bytes of transactions in blocks that our copy of a filter may fail to match (our choice).
MAX_DOUBTFUL_SIZE = 1_000_000

Landed = Callable[
    [list[ScannedBlock], list[ScannedBlock]], None
]  # all blocks, and the blocks that must be fetched whole


@dataclass(slots=True, eq=False)
class Flight:
    """The filtered blocks of one request."""

    wanted: Sequence[tuple[int, bytes]]
    """Height and hash, ascending."""
    then: Landed
    blocks: list[ScannedBlock] = field(default_factory=list)
    whole: list[ScannedBlock] = field(default_factory=list)
    """Blocks without a reliable proof."""


@dataclass(slots=True)
class _Open:
    """A merkleblock whose transactions are still expected."""

    flight: Flight
    block: ScannedBlock
    proof: Proof
    due: set[bytes]
    """Txids of the transactions that have not arrived."""
    raws: dict[bytes, bytes] = field(default_factory=dict)
    """Received transactions without their witness, by txid."""
    size: int = 0
    """Bytes of the received transactions, with witness."""


class BloomLink:
    """BIP-37 requests to one peer, and our copy of its filter."""

    def __init__(self) -> None:
        self.filter: Bip37Filter | None = None
        self.known: Mapping[bytes, None] = {}  # elements that the filter contains
        self.epoch: int = -1  # Epoch of the watch list from which the filter was made.
        self.must_reload = True  # True if the peer needs a new filter before the next request.
        self.covered: int = -1  # Height up to which the filter contains the elements learned from blocks.
        # Transactions (txid or wtxid) that the peer matched and announced, and that have not arrived.
        self.unanswered: set[bytes] = set()
        # True if an announced transaction was not requested, was not sent, or was matched by an older filter.
        self.misses_txs: bool = False
        self.loading: int = 0  # Filters that were sent and that the peer may not have yet.
        self._of_another: set[bytes] = set()  # Unanswered transactions that an older filter may have matched.
        self.is_in_doubt: bool = False  # True if the peer's filter has more elements than our copy.
        self._doubtful_size = 0  # Bytes of transactions in blocks that our copy does not match.
        # Height up to which the peer was asked for unwitnessed ranges. It prevents repeated requests after ranges are
        # joined.
        self.asked_to: int = -1
        self.is_reloading = False  # True if the peer got a new filter because of its answers, without a pong yet.
        self.may_reload_at: float = 0.0  # When the peer's answers may next cause a reload while no block is due.
        # Inputs of announced transactions that the filter should match, by txid, the oldest first.
        self.hunted: dict[bytes, tuple[bytes, ...]] = {}
        self._flights: deque[Flight] = deque()
        self._open: _Open | None = None

    @property
    def flights(self) -> int:
        """The number of outstanding flights."""
        return len(self._flights)

    @property
    def expects_txs(self) -> bool:
        """True if transactions of a block are due."""
        return self._open is not None

    def load(self, made: Bip37Filter, epoch: int, covered: int, known: Mapping[bytes, None]) -> None:
        """Record that the peer gets a new filter. Outstanding requests are still answered with the previous filter."""
        self.asked_to = self.asked_to if epoch == self.epoch else -1
        self.filter, self.epoch, self.covered, self.known = made.copy(), epoch, covered, known
        self.misses_txs, self.is_in_doubt, self._doubtful_size = bool(self.unanswered), False, 0
        self._of_another |= self.unanswered
        self.loading += 1

    def announced(self, tx_hashes: Collection[bytes]) -> None:
        """Record that the peer has announced matching transactions (txids or wtxids), which are now requested."""
        self.unanswered.update(tx_hashes)
        if self.loading:
            self._of_another.update(tx_hashes)

    def not_found(self, tx_hash: bytes) -> None:
        """Record that the peer no longer has an announced transaction (notfound)."""
        if tx_hash in self.unanswered:
            self.unanswered.discard(tx_hash)
            self._of_another.discard(tx_hash)
            self.misses_txs = True

    def came(self, tx: Transaction) -> None:
        """Process an announced transaction that has arrived.

        Our copy of the filter learns nothing if an older filter, or no filter, may have matched the transaction. The
        peer's current filter may not contain its outputs, so the peer may honestly omit their spends.

        Raises:
            LieError: Our copy of the filter does not match the transaction.
            UselessPeerError: Our copy fails to match too many bytes of transactions.
        """
        ids = {tx.txid, tx.wtxid}
        was_matched = not ids.isdisjoint(self.unanswered)
        self.unanswered -= ids
        if was_matched and self._of_another.isdisjoint(ids):
            self.judge(tx.raw, in_block=False)
        else:
            self._of_another -= ids
            self.misses_txs = True

    def hunt(self, tx: Transaction, most: int) -> list[bytes]:
        """Make the filter match double-spends of an announced transaction, and return the outpoints that it lacked.

        At most `most` outpoints are remembered for the next filter: those of the latest transactions.
        """
        if len(tx.inputs) > most:
            return []
        self.hunted.pop(tx.txid, None)
        self.hunted[tx.txid] = tx.inputs
        while sum(map(len, self.hunted.values())) > most:
            del self.hunted[next(iter(self.hunted))]
        return self.teach(tx.inputs)

    def begin(self, flight: Flight) -> None:
        """Record that a flight has been requested."""
        self._flights.append(flight)

    def land(self, flight: Flight) -> None:
        """Handle the pong that ends a flight.

        Raises:
            LieError: The peer withheld a transaction in the last block.
            UselessPeerError: The peer did not send all blocks of the flight.
        """
        self._close()
        if len(flight.blocks) < len(flight.wanted):
            height, block_hash = flight.wanted[len(flight.blocks)]
            raise UselessPeerError(f"did not send block {height}, {hash_to_hex(block_hash)}, which is in its own chain")
        self._flights.remove(flight)
        flight.then(flight.blocks, flight.whole)

    def merkleblock(self, message: MerkleBlock) -> Flight:
        """Process a merkleblock message, and return its flight. Raises LieError, ProofError and UselessPeerError."""
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
            block.branches = partial_branches(message.total, message.hashes, message.flags)
            self._open = _Open(flight, block, proof, {proved.txid for proved in proof.matched})
        if proof.ambiguous:
            flight.whole.append(block)
        return flight

    def tx(self, tx: Transaction) -> bool:
        """Process a transaction. Returns True if the last merkleblock proves it.

        Raises LieError if the transactions are larger than a block.

        The witness is not kept, since a txid does not commit to it, and a peer could add a large false one. Core sends
        no witness with a filtered block.
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
        """Update our copy of the filter with a transaction that the peer's filter matched.

        The peer's filter learns from announced transactions, but our copy only from received ones. While an announced
        transaction is missing, a transaction that our copy does not match is not a lie, but a reason to load a new
        filter. A missing transaction explains only a few of these, so there is a limit.

        Raises:
            LieError: Our copy does not match, and no announced transaction is missing.
            UselessPeerError: Our copy fails to match more than `MAX_DOUBTFUL_SIZE` bytes of transactions.
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
        """Add elements to our copy of the filter, and return the elements that it lacked."""
        assert self.filter is not None
        missing = [element for element in elements if element not in self.filter]
        for element in missing:
            self.filter.insert(element)
        return missing

    def _close(self) -> None:
        """Finish the last merkleblock, because no more of its transactions can arrive."""
        current, self._open = self._open, None
        if current is None:
            return
        found = []
        for proved in current.proof.matched:
            raw = current.raws.get(proved.txid)
            if raw is None:
                where = f"{hash_to_hex(proved.txid)} of block {current.block.height}"
                raise LieError(f"transaction {where}", cause=Lie.WITHHELD_TX)
            self.hunted.pop(proved.txid, None)
            self.judge(raw, in_block=True)
            if not are_amounts(raw, Transaction.parse(raw).span):
                where = f"{hash_to_hex(proved.txid)} of block {current.block.height}"
                raise LieError(f"the output values of transaction {where} are out of range", cause=Lie.IMPOSSIBLE_TX)
            found.append(FoundTx(proved.position, raw))
        current.block.txs = found
        if not current.proof.ambiguous and not current.proof.trusted_with(tx.raw for tx in found):
            current.flight.whole.append(current.block)
