"""The invariants of a life, each a function with its name."""

from __future__ import annotations

import ipaddress
from hashlib import sha256
from typing import TYPE_CHECKING

from simulation import oracle
from simulation.behaviours.base import Behaviour
from simulation.comparison import check_same
from simulation.truth import Truth
from simulation.violation import Violation
from spvfilter.light.events import Event, PeerWarning, Synced
from spvfilter.wallet.events import BlockConnected, MatchConfirmed, MatchFound
from spvfilter.watch.match import Completeness
from spvfilter.wire.messages.filters import CFHeaders
from spvfilter.wire.messages.table import Message

if TYPE_CHECKING:
    from simulation.world import World


def group_of(host: str) -> str:
    """The first half of an IPv4 address."""
    return ".".join(str(ipaddress.ip_address(host)).split(".")[:2])


class Agreement:
    """Which groups of hosts have stated which filter header of which block, as the client heard it."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._stated: dict[bytes, dict[bytes, set[str]]] = {}  # block → filter header → groups

    def heard(self, host: str, message: Message) -> None:
        """The client was sent a message."""
        if not isinstance(message, CFHeaders):
            return
        header, group = message.previous, group_of(host)
        blocks = self._blocks(message.stop_hash, len(message.filter_hashes) + 1)
        if len(blocks) > len(message.filter_hashes):  # the header before the first is stated as well
            self._stated.setdefault(blocks[0], {}).setdefault(header, set()).add(group)
        for block, filter_hash in zip(self._blocks(message.stop_hash, len(message.filter_hashes)), message.filter_hashes, strict=False):
            header = sha256(sha256(filter_hash + header).digest()).digest()
            self._stated.setdefault(block, {}).setdefault(header, set()).add(group)

    def _blocks(self, stop: bytes, number: int) -> list[bytes]:
        found: list[bytes] = []
        block = self._truth.regtest.chain.blocks.get(stop)
        while block is not None and len(found) < number:
            found.append(block.hash)
            block = block.previous
        return found[::-1]

    def is_proven(self, digest: bytes) -> bool:
        """Whether two groups have stated the same filter header of a block or of one above it, which commits to all below."""
        chain = self._truth.regtest.chain
        block = chain.blocks.get(digest)
        if block is None:
            return False
        above = chain.active[block.height :] if chain.is_active(block) else [block]
        return any(len(groups) >= 2 for each in above for groups in self._stated.get(each.hash, {}).values())


def check_just(warning: PeerWarning, behaviour: Behaviour) -> None:
    """Just: no honest peer is banned."""
    if behaviour.is_honest:
        raise Violation("just", f"the honest {warning.address} ({behaviour.name}) was banned: {warning.error!r}")


def check_told(event: Event, truth: Truth, agreed: Agreement) -> None:
    """True and honest about itself: what is told of a block is in it, and "proven" is what independent peers agreed on."""
    match event:
        case MatchFound(match, completeness) | MatchConfirmed(match, completeness) if match.block_hash is not None:
            raw = truth.block(match.block_hash)
            if raw is None:
                raise Violation("true", f"told of a block that nobody mined: {match}")
            txs = {tx.txid: tx for tx in oracle.read_block(raw)}
            if (tx := txs.get(match.txid)) is None:
                raise Violation("true", f"told of a transaction that is not in its block: {match}")
            scripts = truth.scripts()
            if str(match.kind) == "output" and (match.index >= len(tx.pays) or tx.pays[match.index] not in scripts):
                raise Violation("true", f"told of an output that is not ours: {match}")
            if str(match.kind) == "input" and (match.index >= len(tx.spends) or tx.spends[match.index] != bytes(match.outpoint)):
                raise Violation("true", f"told of an input that does not spend this: {match}")
            if completeness is Completeness.PROVEN and not agreed.is_proven(match.block_hash):
                raise Violation("honest", f"told as proven, but no two groups agreed on its filter: {match}")
        case BlockConnected(height, digest) | Synced(height, digest):
            if truth.block(digest) is None:
                raise Violation("true", f"told of block {height}, which nobody mined")
        case _:
            pass


def is_settled(world: World) -> bool:
    """Whether the client says that it is at the tip, and what it tells is what there is."""
    process = world.process
    if process is None or process.books.synced is None or process.books.synced.hash != world.truth.tip:
        return False
    return process.books.confirmed() == world.truth.scan()


def check_end(world: World) -> None:
    """Alive and true, once faults have ended and the time to settle has passed."""
    process = world.process
    if process is None:
        raise Violation("alive", "the client does not run")
    synced = process.books.synced
    if synced is None or synced.hash != world.truth.tip:
        raise Violation("alive", f"Synced is {synced and synced.height}, the tip is {world.truth.height}")
    check_same(process.books.confirmed(), world.truth.scan(), "the events")


def check_waiting(world: World) -> None:
    """True: nothing is told as unconfirmed that a block of the best chain has, or contradicts."""
    assert world.process is not None
    confirmed = {tx.txid: tx for block in world.truth.regtest.chain.active for tx in oracle.read_block(block.raw)}
    if wrong := [txid for txid in world.process.books.waiting() if txid in confirmed]:
        raise Violation("true", f"{len(wrong)} unconfirmed transactions are in a block: {wrong[0][::-1].hex()}")
