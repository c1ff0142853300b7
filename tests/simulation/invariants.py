"""The invariants of a life, each a function with its name."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from simulation import oracle
from simulation.agreement import Agreement
from simulation.balance import check_balance
from simulation.behaviours.base import Behaviour
from simulation.comparison import check_same
from simulation.truth import Truth
from simulation.violation import Violation
from simulation.weight import weigh
from simulation.wishes import claimed
from spvfilter.light.engine.saved import PRIVATE_NOTE
from spvfilter.light.events import Event, Mode, PeerWarning, Synced
from spvfilter.signatures import find_curve
from spvfilter.store.ledger import StoredTx, TxStatus
from spvfilter.wallet.events import BlockConnected, MatchConfirmed, MatchFound, MatchWithdrawn, Reason
from spvfilter.watch.match import Completeness
from spvfilter.wire.messages.table import FilterLoad, Message

if TYPE_CHECKING:
    from simulation.host import EngineLike, Process
    from simulation.world import World
    from spvfilter.node.blocktree import TreeBlock

_PROMPT_S = 90.0  # an honest, prompt peer must have been connected for this long before the client must know its data
_MOST_SKEW_S = 70 * 60  # Core timeoffsets.h
_MOST_OBJECTS = 250_000
_MOST_BYTES = 20_000_000


def check_just(warning: PeerWarning, behaviour: Behaviour) -> None:
    """Just: no honest peer is banned."""
    if behaviour.is_honest:
        raise Violation("just", f"the honest {warning.address} ({behaviour.name}) was banned: {warning.error!r}")


def check_signed(event: Event, forged: Collection[bytes]) -> None:
    """True: a spend of a known coin without a valid signature never counts. Without libsecp256k1 nobody can tell.

    A forged spend of a coin that the wallet does not know may count as a payment.
    """
    match = event.match if isinstance(event, (MatchFound, MatchConfirmed)) else None
    if match is None or match.txid not in forged or find_curve() is None:
        return
    if str(match.kind) == "input" and match.script_pubkey is not None:
        raise Violation("true", f"told of a spend that nobody signed: {match}")


def check_told(event: Event, truth: Truth, agreed: Agreement) -> None:
    """True and honest about itself: a reported match is in its block. "Proven" means that independent peers agreed on
    the block's filter.
    """
    match event:
        case MatchFound(match, completeness) | MatchConfirmed(match, completeness) if match.block_hash is not None:
            block = truth.block(match.block_hash)
            if block is None:
                raise Violation("true", f"told of a block that nobody mined: {match}")
            txs = {tx.txid: tx for tx in oracle.read_block(block.raw)}
            if (tx := txs.get(match.txid)) is None:
                raise Violation("true", f"told of a transaction that is not in its block: {match}")
            if str(match.kind) == "output" and (match.index >= len(tx.pays) or not truth.has_had(tx.pays[match.index])):
                raise Violation("true", f"told of an output that is not ours: {match}")
            if str(match.kind) == "input" and (
                match.index >= len(tx.spends) or tx.spends[match.index] != bytes(match.outpoint)
            ):
                raise Violation("true", f"told of an input that does not spend this: {match}")
            if completeness is Completeness.PROVEN and not agreed.is_proven(match.block_hash):
                raise Violation("honest", f"told as proven, but no two groups agreed on its filter: {match}")
        case MatchWithdrawn(match, Reason.EXPIRED):
            raise Violation("true", f"expired within hours, whatever the clock shows: {match}")
        case BlockConnected(height, digest) | Synced(height, digest):
            if truth.block(digest) is None:
                raise Violation("true", f"told of block {height}, which nobody mined")
        case _:
            pass


def check_synced(world: World, process: Process, event: Synced) -> None:
    """Honest about itself: the client reports Synced only at the tip and names the peers that have this block.

    It claims no proof beyond the filter headers that independent peers agreed on.
    """
    truth = world.truth
    if unknown := [address for address in event.peers if address not in world.directory]:
        raise Violation("honest", f"Synced on the word of {unknown}")
    if event.proven_height > event.height or any(
        not 0 <= first <= last <= event.height for first, last in event.disputed
    ):
        raise Violation("honest", f"Synced contradicts itself: {event}")
    without = [
        each for each in event.peers if not (node := world.directory[each]).behaviour.has_block(node.view, event.hash)
    ]
    if without or not event.peers:
        raise Violation(
            "honest", f"Synced at {event.height} on the word of {without or 'nobody'}, who do not have that block"
        )
    if abs(world.skew_s) > _MOST_SKEW_S and process.synced_at >= world.skewed_at and world.most_clocks_are_right():
        raise Violation("honest", f"Synced while our clock is off by {world.skew_s:.0f} s")
    block = truth.regtest.chain.blocks.get(event.hash)
    if event.proven_height >= 0 and block is not None:
        proven = truth.regtest.chain.ancestor(block, event.proven_height)
        if not world.agreed.is_proven(proven.hash):
            raise Violation(
                "honest", f"proven up to {event.proven_height}, but no two groups agreed on its filter header"
            )
    if not world.has_prompt_peer(_PROMPT_S):
        return
    age = truth.stale_for(event.hash, world.timeline.now)
    if age > _PROMPT_S:
        raise Violation(
            "true", f"Synced at {event.height}, which has not been the tip for {age:.0f} s; the tip is {truth.height}"
        )
    nobody_lies = all(node.behaviour.is_honest for node in world.nodes)
    if event.hash == truth.tip and (world.modes == {Mode.COMPACT} or nobody_lies):
        doubted = {height for first, last in event.disputed for height in range(first, last + 1)}
        ranges = process.ranges_of(world.wishes.watched)
        ranges = ranges if world.silent is None else world.silent.claimed(ranges)
        there = claimed(_chain(world), ranges, doubted)
        told = {place for place in process.books.confirmed() if place.height not in doubted}
        check_same(told, there, f"at Synced {event.height} the events", oracle.scan(_chain(world), world.wishes.ever))
        if not process.disk.waiting:
            check_searched(world, process, event)


def _without(places: set[oracle.Place], heights: set[int]) -> set[oracle.Place]:
    return {place for place in places if place.height not in heights} if heights else places


def _chain(world: World) -> list[bytes]:
    return [block.raw for block in world.truth.regtest.chain.active]


def check_searched(world: World, process: Process, event: Synced) -> None:
    """Honest about itself: the client searches the requested blocks, and Synced names the blocks that it skipped."""
    skipped = {height for first, last in event.skipped for height in range(first, last + 1)}
    not_searched: dict[tuple[tuple[int, int], ...], set[int]] = {}  # heights, by the ranges that were searched
    for script, ranges in process.ranges_of(world.wishes.watched).items():
        first = world.wishes.watched[script].first
        if ranges not in not_searched:
            every = set(range(event.height + 1))
            not_searched[ranges] = every.difference(*(range(low, high + 1) for low, high in ranges))
        if missing := not_searched[ranges]:
            if missing - skipped:
                raise Violation(
                    "honest", f"Synced at {event.height} hides that block {min(missing - skipped)} was not searched"
                )
            if max(first, 0) <= max(missing) < event.height:
                raise Violation(
                    "true", f"block {max(missing)} was not searched for a script that is watched from {first} on"
                )


def check_claims(world: World, when: str) -> None:
    """True: if the database says that a block was searched for a script, it has the block's matches of that script."""
    process = world.process
    if process is None or (world.may_lie() and not world.is_calm) or world.may_miss():
        return
    chain, stored = _chain(world), process.disk.store
    height = stored.tip
    if not 0 <= height < len(chain) or b"".join(stored.headers(height)) != chain[height][:80]:
        return  # the client is still on a branch that it must leave
    ranges = {
        script: found for script, found in process.ranges_stored(world.wishes.ever).items() if script in process.watch
    }
    ranges = ranges if world.silent is None else world.silent.claimed(ranges)
    if outside := [each for script in ranges for each in ranges[script] if not 0 <= each[0] <= each[1] <= height]:
        raise Violation("honest", f"{when} blocks count as searched that are not there: {outside[0]}")
    doubted = world.doubted(process.books.synced)
    told, there = _without(process.stored(), doubted), claimed(chain, ranges, doubted)
    check_same(told, there, f"{when} the database's matches", oracle.scan(chain, world.wishes.ever))
    if world.accounts is not None:
        world.accounts.check_books(process)


_WITNESS_S = 30.0  # within which a client has heard of a payment from peers of two network groups


def check_modest(engine: EngineLike, unconfirmed: Mapping[bytes, StoredTx]) -> None:
    """Modest: the engine's memory is bounded, whatever peers send. Unconfirmed transactions may take some megabytes."""
    weight = weigh(engine)
    pending = sum(len(each.raw) for each in unconfirmed.values())
    if weight.objects > _MOST_OBJECTS + pending // 10 or weight.size > _MOST_BYTES + 3 * pending:
        raise Violation("modest", f"the engine holds {weight.objects:,} objects and {weight.size:,} bytes")


def is_settled(world: World) -> bool:
    """Return True if the client is synced to the tip, its matches are those of the chain, and no peer is missing."""
    try:
        check_end(world)
    except Violation:
        return False
    return True


def unsent(world: World) -> list[bytes]:
    """Txids of own valid transactions that no honest node received.

    A private transaction waits, without a limit, for a new peer that requests it. Transactions that it replaces wait
    with it.
    """
    if world.process is None:
        return []
    regtest, found = world.truth.regtest, []
    private = json.loads(world.process.disk.store.note(PRIVATE_NOTE) or b"{}")
    waiting = {bytes.fromhex(txid) for txid, (*_, is_handed) in private.items() if not is_handed}
    for txid, pending in world.process.disk.unconfirmed().items():
        is_waiting = txid in waiting or pending.conflicts_with in waiting
        is_unsent = pending.broadcast_seq is not None and txid not in regtest.mempool and not is_waiting
        if is_unsent and world.truth.would_take(pending.raw):
            found.append(txid)
    return found


def forgotten(world: World, process: Process) -> list[bytes]:
    """Txids of own transactions that a peer accepted, but that neither the wallet nor the network has any more.

    The wallet may drop a transaction without matches once a block confirms it, even if another block conflicts with it
    later.
    """
    regtest = world.truth.regtest
    lost = [txid for txid in sorted(world.answered) if process.disk.store.views.transaction(txid) is None]
    mined = {txid for block in regtest.chain.active for txid in block.txids} if lost else set()
    gone = [txid for txid in lost if txid not in mined and txid not in regtest.mempool]
    blocks = (*regtest.chain.blocks.values(), *world.truth.others_blocks.values()) if gone else ()
    once = {txid for block in blocks for txid in block.txids}
    return [txid for txid in gone if txid not in once or world.truth.would_take(world.answered[txid])]


def untold(world: World) -> set[bytes]:
    """Txids of payments to the wallet that every honest mempool has and the client has not reported.

    If a later transaction conflicts with a payment, the client may report the payment as replaced. A block decides
    which of the two is canonical. A payment may wait until peers of two network groups can have announced it.
    """
    if world.process is None or not world.options.mempool:
        return set()
    missing = world.truth.ours_waiting(world.is_awaited) - world.process.books.waiting()
    if world.user is not None:
        missing -= world.user.ruled_out()
    if len(world.prompt_groups(_WITNESS_S)) < 2:
        missing -= {entry.txid for entry in world.process.disk.store.views.history(waiting=True)}
    known = world.process.disk.unconfirmed()
    return {txid for txid in missing if txid not in known or known[txid].status is not TxStatus.REPLACED}


def check_end(world: World) -> None:
    """Alive, true and just: checks the end of a life, after faults have ended and the client had time to settle."""
    process = world.process
    if process is None:
        raise Violation("alive", "the client does not run")
    synced = process.books.synced
    if (synced is None or synced.hash != world.truth.tip) and not world.may_withhold_synced():
        raise Violation("alive", f"Synced is {synced and synced.height}, the tip is {world.truth.height}")
    if world.wishes.waiting:
        raise Violation("alive", f"no answer to {next(iter(world.wishes.waiting.values()))}")
    chain = _chain(world)
    wanted: dict[bytes, tuple[tuple[int, int], ...]] = {
        script: ((first, len(chain)),) for script, (first,) in world.wishes.watched.items() if world.is_wanted(script)
    }
    wanted = wanted if world.silent is None else world.silent.claimed(wanted)
    doubted = world.doubted(synced)
    there = claimed(chain, wanted, doubted) if not world.may_miss() else set()
    allowed = world.truth.scan()  # a search for another script, from a lower height, finds more
    check_claims(world, "at the end")
    if synced is not None and not world.may_withhold_synced():
        check_searched(world, process, synced)
    check_same(_without(process.books.confirmed(), doubted), there, "the events", allowed)
    check_same(_without(process.stored(), doubted), there, "the database's matches", allowed)
    check_balance(world, may_lack=bool(doubted))
    if world.keychain is not None:
        world.keychain.check_end(world, process)
    if world.accounts is not None:
        world.accounts.check_end(process)
    if world.silent is not None:
        world.silent.check_end(process)
    if world.user is not None:
        world.user.check_end()
    if not world.may_miss() and not doubted:
        check_waiting(world)
    if gone := forgotten(world, process):
        raise Violation("alive", f"our transaction {gone[0][::-1].hex()}, which a peer has, was forgotten")
    if absent := world.absent_peers():
        raise Violation("just", f"the honest {absent[0]} has not come back")
    if world.may_withhold_synced():
        return  # until Synced, the client ignores mempools
    if kept := unsent(world):
        raise Violation("alive", f"our transaction {kept[0][::-1].hex()} was offered to no honest peer")
    if silent := untold(world):
        raise Violation("alive", f"{len(silent)} unconfirmed payments were not told of: {min(silent)[::-1].hex()}")


def check_waiting(world: World) -> None:
    """True: no transaction that the best chain confirms, or conflicts with, is reported as unconfirmed.

    The client cannot notice a conflict in these cases:

    * A transaction arrived while the conflicting block was connected: filters lack the outpoints that foreign payments
      spend.
    * The input does not show the script of its coin, as with bare multisig, and that script is not watched.
    * The conflicting block was skipped.
    * The user's transaction matches nothing: the client does not search blocks for it.
    """
    assert world.process is not None
    synced = world.process.books.synced
    skipped = {
        height for first, last in (synced.skipped if synced is not None else ()) for height in range(first, last + 1)
    }
    waiting, unconfirmed = world.process.books.waiting(), world.process.disk.unconfirmed()
    spent: dict[bytes, TreeBlock] = {}  # spending block, by outpoint
    scripts: dict[bytes, bytes] = {}  # script of each output, by outpoint
    confirmed: set[bytes] = set()
    for block in world.truth.regtest.chain.active:
        for tx in oracle.read_block(block.raw):
            if block.height not in skipped:
                confirmed.add(tx.txid)
            spent.update((outpoint, block) for outpoint in tx.spends)
            scripts.update((tx.txid + index.to_bytes(4, "little"), script) for index, script in enumerate(tx.pays))
    for txid, pending in unconfirmed.items():
        if txid in confirmed and (pending.hits or pending.broadcast_seq is None or world.user is None):
            raise Violation("true", f"an unconfirmed transaction is in a block: {txid[::-1].hex()}")
        if world.modes != {Mode.COMPACT}:
            continue  # a peer's filter lacks the outpoints that foreign payments spend
        rivals = [
            spent[outpoint]
            for outpoint in oracle.spends(pending.raw)
            if outpoint in spent and (_is_shown(scripts[outpoint]) or scripts[outpoint] in world.process.watch)
        ]
        if txid in world.truth.relayed and not all(world.came_after(txid, block) for block in rivals):
            raise Violation("true", f"an unconfirmed transaction contradicts a block: {txid[::-1].hex()}")
    if unknown := waiting - unconfirmed.keys():
        raise Violation("true", f"unconfirmed matches of {len(unknown)} transactions that are not in the database")


# P2WSH scripts of one opcode, of the miner and of the wallet
_ANYONE = {b"\x00\x20" + sha256(script).digest() for script in (b"\x51", b"\x54")}


def _is_shown(script: bytes) -> bool:
    """Return True if the input that spends a coin shows the coin's script.

    This holds for P2PKH, P2SH, P2WPKH, and P2WSH with a signature.
    """
    return script.startswith((b"\x76\xa9\x14", b"\xa9\x14", b"\x00\x14", b"\x00\x20")) and script not in _ANYONE


class Privacy:
    """Quiet: the BIP-37 filters of a wallet all have one tweak. If a peer serves compact filters, none is sent."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.tweak: int | None = None

    def sent(self, message: Message) -> None:
        """Check a message that the client sends."""
        if not isinstance(message, FilterLoad):
            return
        if self.tweak not in (None, message.tweak):
            raise Violation("quiet", "a filter with another tweak: the intersection of two shows what is ours")
        self.tweak = message.tweak
        if self._world.options.mode is Mode.COMPACT:
            raise Violation("quiet", "a BIP-37 filter in compact mode")
        if self._world.options.mode is Mode.AUTO and self._world.has_prompt_peer(_PROMPT_S):
            raise Violation("quiet", "a BIP-37 filter though a peer serves compact filters")
