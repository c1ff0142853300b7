"""Whole blocks: request each one from a random peer, or from another peer after a stall, and check it by its header."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from spvfilter.errors import FormatError, LieError, UselessPeerError
from spvfilter.hashes import sha256d
from spvfilter.kernel import check_amounts, check_block, walk_block
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.demands import Demand
from spvfilter.light.engine.feerates import RecentRates, block_fee_rate
from spvfilter.light.engine.headers import PeerHeaders
from spvfilter.light.engine.peers import Peer, PeerState
from spvfilter.light.events import BlockFeeRate, PeerWarning
from spvfilter.light.lies import Lie
from spvfilter.network import Network
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import COMMITMENT_PREFIX, HEADER_SIZE
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import GetData, InvItem, InvType

MAX_PER_PEER = 16  # blocks requested from one peer at a time (our choice)
# Each pruned peer is reported once. This is the number of their latest addresses to remember (our choice).
MAX_NAMED = 1_000
HISTORICAL_S = 7 * 86_400  # Age above which a block is old (Core net_processing.cpp HISTORICAL_BLOCK_AGE).


@dataclass(slots=True)
class _Wanted:
    height: int
    then: list[Callable[[bytes], None]]
    asked: set[Peer] = field(default_factory=set)
    """Peers that have been asked for the block and have not sent it yet."""
    lacking: set[Peer] = field(default_factory=set)
    """Peers that have said that they lack the block."""
    is_checked: bool = False
    """True if a copy has arrived and is being checked."""


class BlockRequests:
    """Requested blocks, keyed by hash, until they arrive."""

    def __init__(self, context: Context, headers: PeerHeaders) -> None:
        self._context = context
        self._headers = headers
        self._wanted: dict[bytes, _Wanted] = {}
        self._asked: dict[Peer, set[bytes]] = {}  # blocks that each peer may still send
        self.fee_rates: RecentRates = RecentRates(context.chain)
        self._pruners: dict[str, None] = {}  # reported addresses of pruned peers, the latest last
        context.pool.on_gone(self._gone)

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, height: int, block_hash: bytes, then: Callable[[bytes], None]) -> None:
        """Fetch a block of the best chain. `then` is called once with the block, unless the call is cancelled."""
        wanted = self._wanted.get(block_hash)
        if wanted is None:
            self._wanted[block_hash] = _Wanted(height, [then])
            self._context.changed()
        elif then not in wanted.then:
            wanted.then.append(then)

    def forget(self, block_hash: bytes, then: Callable[[bytes], None]) -> None:
        """Stop waiting for a block for one caller. If no other caller wants the block, it is no longer requested."""
        wanted = self._wanted.get(block_hash)
        if wanted is not None and then in wanted.then:
            wanted.then.remove(then)
            if not wanted.then:
                del self._wanted[block_hash]

    def is_wanted(self, block_hash: bytes) -> bool:
        """True if a block is still expected."""
        return block_hash in self._wanted

    def is_to_be_had(self, height: int, *, at_once: bool = False) -> bool:
        """True if a connected peer keeps blocks at this height. With `at_once`, the peer must also answer promptly."""
        ready = self._context.pool.ready()
        able = (peer for peer in ready if peer.state is PeerState.READY or not at_once)
        return any(self._serves(peer, height) and self._headers.knows(peer) >= height for peer in able)

    def _serves(self, peer: Peer, height: int) -> bool:
        """True if a peer keeps the block at a height and does not refuse old blocks, or if the block is not old."""
        context = self._context
        is_refused = context.pool.refuses(peer, Demand.BLOCKS, context.now) and self._is_old(height)
        return peer.has_block(context.chain.height - height) and not is_refused

    def _is_old(self, height: int) -> bool:
        chain = self._context.chain
        return chain.time_at(chain.height) - chain.time_at(height) > HISTORICAL_S

    def disconnect_to(self, height: int) -> None:
        """Cancel the requests for blocks above a height, which were disconnected or are to be searched again."""
        for block_hash in [block_hash for block_hash, wanted in self._wanted.items() if wanted.height > height]:
            del self._wanted[block_hash]

    def advance(self) -> None:
        """Request blocks that have been requested from no peer, or only from peers that stall.

        All the blocks that one peer is to send are requested in one message.
        """
        questions: dict[Peer, list[InvItem]] = {}
        for block_hash, wanted in list(self._wanted.items()):
            if wanted.is_checked or any(peer.state is PeerState.READY for peer in wanted.asked):
                continue
            peer = self._choose(wanted)
            if peer is not None:
                wanted.asked.add(peer)
                owed = self._asked.setdefault(peer, set())
                if block_hash not in owed:  # else a cancelled request is outstanding, and may still be answered
                    owed.add(block_hash)
                    if self._is_old(wanted.height):
                        self._context.pool.demand(peer, Demand.BLOCKS, self._context.now)
                    self._context.pool.ask(peer, ("block", block_hash), self._context.now)
                    questions.setdefault(peer, []).append(InvItem(InvType.WITNESS_BLOCK, block_hash))
        for peer, items in questions.items():
            self._context.out.send(peer.number, GetData(tuple(items)))

    def _choose(self, wanted: _Wanted) -> Peer | None:
        depth = self._context.chain.height - wanted.height
        knowing = [
            peer
            for peer in self._context.pool.ready()
            if peer not in wanted.asked and peer not in wanted.lacking and self._headers.knows(peer) >= wanted.height
        ]
        able = [
            peer
            for peer in knowing
            if self._serves(peer, wanted.height) and len(self._asked.get(peer, ())) < MAX_PER_PEER
        ]
        prompt = [peer for peer in able if peer.state is PeerState.READY]
        if prompt:
            return self._context.random.choice(prompt)
        if wanted.asked:
            return None  # the block may still arrive, and suspects are no better
        if able:
            return self._context.random.choice(able)
        if not any(peer.has_block(depth) for peer in knowing):
            self.name_pruners(knowing, wanted.height)
            self._drop_lacking(wanted)
        return None

    def _drop_lacking(self, wanted: _Wanted) -> None:
        """Drop a peer that says it lacks a block of its own chain, so that it is asked again after a pause.

        This is done only if no other peer has the block.
        """
        lacking = next((peer for peer in self._context.pool.ready() if peer in wanted.lacking), None)
        if lacking is not None:
            error = UselessPeerError(f"does not have block {wanted.height}, which is in its own chain")
            self._context.pool.drop(lacking, error, self._context.now)
            self._context.changed()

    def name_pruners(self, peers: Iterable[Peer], height: int) -> None:
        """Warn, once for each address, that the search is waiting because these peers keep only recent blocks."""
        for peer in peers:
            if peer.address not in self._pruners:
                self._pruners[peer.address] = None
                if len(self._pruners) > MAX_NAMED:
                    del self._pruners[next(iter(self._pruners))]
                error = UselessPeerError(f"keeps only recent blocks, and no other connected peer has block {height}")
                self._context.out.emit(PeerWarning(peer.address, error, False))

    def take(self, peer: Peer, raw: bytes) -> None:
        """Handle a block from a peer. Raises LieError if it was not requested."""
        block_hash = sha256d(raw[:HEADER_SIZE])
        asked = self._asked.get(peer, set())
        if block_hash not in asked:
            raise LieError(f"block {hash_to_hex(block_hash)}", cause=Lie.UNASKED_BLOCK)
        asked.discard(block_hash)
        self._context.pool.answered(peer, ("block", block_hash), self._context.now)
        self._context.changed()
        wanted = self._wanted.get(block_hash)
        if wanted is None:
            return
        if self._is_old(wanted.height):
            self._context.pool.grant(peer, Demand.BLOCKS)
        wanted.asked.discard(peer)  # it has answered; it is asked again if the copy under check is false
        if wanted.is_checked:
            return
        wanted.is_checked = True
        network = self._context.chain.network
        height = wanted.height if self.fee_rates.wants(wanted.height) else None
        check = partial(_examined, raw, network, height, must_have_witness=wanted.height >= network.segwit_height)
        if len(raw) <= self._context.options.timeouts.small_block:
            self._checked(peer, block_hash, raw, check())
        else:
            self._context.out.work(check, partial(self._checked, peer, block_hash, raw))

    def _checked(self, peer: Peer, block_hash: bytes, raw: bytes, found: object) -> None:
        wanted = self._wanted.get(block_hash)
        self._context.changed()
        if isinstance(found, BlockFeeRate):
            self.fee_rates.add(found)
        if isinstance(found, Exception):
            if wanted is not None:
                wanted.is_checked = False
                wanted.asked.discard(peer)
                wanted.lacking.add(peer)
            self._context.pool.drop(peer, found, self._context.now)
        elif wanted is not None:
            del self._wanted[block_hash]
            for then in wanted.then:
                then(raw)

    def not_found(self, peer: Peer, block_hash: bytes) -> None:
        """Record that a peer does not have a block (notfound)."""
        asked = self._asked.get(peer, set())
        if block_hash in asked:
            asked.discard(block_hash)
            self._context.pool.answered(peer, ("block", block_hash), self._context.now)
            wanted = self._wanted.get(block_hash)
            if wanted is not None:
                wanted.asked.discard(peer)
                wanted.lacking.add(peer)
            self._context.changed()

    def _gone(self, peer: Peer) -> None:
        self._asked.pop(peer, None)
        for wanted in self._wanted.values():
            wanted.asked.discard(peer)
            wanted.lacking.discard(peer)


def _examined(
    raw: bytes, network: Network, height: int | None, *, must_have_witness: bool
) -> Exception | BlockFeeRate | None:
    """Return what is wrong with a block, otherwise its average fee rate. Without `height`, the rate is None."""
    flaw = flaw_in(raw, must_have_witness)
    return flaw if flaw is not None or height is None else block_fee_rate(raw, network, height)


def flaw_in(raw: bytes, must_have_witness: bool) -> Exception | None:
    """Return an error if a block has a flaw that its header's hash does not reveal, or None.

    The only consensus rule checked here is the one for amounts, since the books add them up.
    """
    cause = Lie.FALSE_BLOCK
    try:
        check_block(raw)
        cause = Lie.IMPOSSIBLE_TX
        check_amounts(raw)
    except FormatError as error:
        return LieError(f"block {_name(raw)}: {error}", cause=cause)
    if must_have_witness and _is_stripped(raw):
        return UselessPeerError(f"sends block {_name(raw)} without the witnesses that it commits to")
    return None


def _name(raw: bytes) -> str:
    return hash_to_hex(sha256d(raw[:HEADER_SIZE]))


def _is_stripped(raw: bytes) -> bool:
    """True if the coinbase commits to witnesses and has no witness itself (Core: bad-witness-nonce-size)."""
    span = next(iter(walk_block(raw)))
    if span.witness:
        return False
    coinbase = Transaction.parse(raw[span.start : span.end])
    return any(
        len(out.script_pubkey) >= 38 and out.script_pubkey.startswith(COMMITMENT_PREFIX) for out in coinbase.outputs
    )
