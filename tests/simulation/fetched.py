"""Fetched: the whole blocks that a client in compact mode requests, and the reason for each of them.

A block has a reason if it pays or spends a script that the client may ask for. These are:

- scripts that were watched
- scripts of own transactions
- scripts of foreign unconfirmed transactions that were in sight below this block

A false positive of the filter is a reason, too.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from simulation.violation import Violation
from spvfilter.filters.batch import match_filters
from spvfilter.filters.verify import spent_script, witnesses
from spvfilter.kernel import GcsQuery
from spvfilter.light.events import Mode
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import GetData, InvType, Message, Tx

if TYPE_CHECKING:
    from simulation.world import World
    from spvfilter.node.blocktree import TreeBlock

_BLOCKS = (InvType.BLOCK, InvType.WITNESS_BLOCK)


class Fetched:
    """Requests for whole blocks, and the scripts that may be their reason."""

    def __init__(self, world: World) -> None:
        self.requests = Counter[tuple[bytes, int]]()
        """Number of requests for each block, by hash and by number of the connection."""
        self._world = world
        self._own: set[bytes] = set()  # scripts of own transactions
        self._seen: dict[bytes, int] = {}  # foreign transaction → lowest height of first sight

    def sent(self, peer: int, message: Message) -> None:
        """The client sends a message over a connection."""
        if isinstance(message, GetData):
            self.requests.update((item.hash, peer) for item in message.items if item.kind in _BLOCKS)

    def heard(self, message: Message) -> None:
        """A peer sends a message to the client."""
        if isinstance(message, Tx) and self._world.process is not None:
            height = max(self._world.process.engine.books.searched, 0)
            self._seen[message.raw] = min(height, self._seen.get(message.raw, height))

    def broadcast(self, raw: bytes) -> None:
        """The user broadcasts a transaction."""
        self._own |= scripts_of(raw)

    def disconnected(self, height: int, block_hash: bytes) -> None:
        """The client disconnects a block: its transactions are unconfirmed, and in sight below it."""
        block, watched = self._world.truth.block(block_hash), self._watched()
        for tx in self._world.truth.regtest.chain.txs(block) if block is not None else ():
            if not watched.isdisjoint(_elements_of(tx, block)):
                self._seen.setdefault(tx.raw, height)
        self._seen = {raw: min(first, height - 1) for raw, first in self._seen.items()}

    def _watched(self) -> set[bytes]:
        """Every script that was ever watched, or may be."""
        keychain = self._world.keychain
        return self._world.wishes.ever | (set() if keychain is None else keychain.scripts.keys())

    def without_reason(self) -> list[int]:
        """Heights of requested blocks without a reason."""
        world = self._world
        always = self._own | self._watched()
        sights = [(height, scripts_of(raw)) for raw, height in self._seen.items()]
        found = []
        requested = {block_hash for block_hash, _ in self.requests}
        for block in filter(None, map(world.truth.regtest.chain.blocks.get, requested)):
            scripts = always.union(*(each for height, each in sights if height < block.height))
            elements = {each for tx in world.truth.regtest.chain.txs(block) for each in _elements_of(tx, block)}
            if elements.isdisjoint(scripts) and not self._is_false_positive(block, scripts):
                found.append(block.height)
        return sorted(found)

    def _is_false_positive(self, block: TreeBlock, scripts: set[bytes]) -> bool:
        pair = block.hash, self._world.truth.regtest.filters.data(block)
        return next(match_filters([pair], GcsQuery(sorted(scripts))), None) is not None

    def check_end(self) -> None:
        """Modest: every fetched block has a reason, and each search requests it once over each connection.

        A liar can show a false filter, and so force other fetches.
        """
        world = self._world
        if world.modes != {Mode.COMPACT} or world.may_lie() or (world.silent is not None and world.silent.reads_all):
            return
        windows = 0 if world.keychain is None else len(world.keychain.scripts)
        searches = 1 + world.restarts + world.wishes.asked + len(world.truth.forks) + windows
        if (most := max(self.requests.values(), default=0)) > searches:
            raise Violation("modest", f"a block was requested {most} times over a connection in {searches} searches")
        if found := self.without_reason():
            raise Violation("modest", f"{len(found)} blocks were fetched that do not concern the wallet: {found[:10]}")


def scripts_of(raw: bytes) -> set[bytes]:
    """The scripts that a transaction pays, and the spent scripts that its inputs show."""
    tx = Transaction.parse(raw)
    stacks = zip(tx.span.inputs, witnesses(raw, tx.span), strict=True)
    shown = {spent_script(raw[start:end], stack) for (_, start, end), stack in stacks}
    return {out.script_pubkey for out in tx.outputs} | {script for script in shown if script}


def _elements_of(tx: Transaction, block: TreeBlock | None) -> set[bytes]:
    """The scripts that a transaction of a block pays and spends."""
    spent = (block.spent if block is not None else None) or {}
    return {out.script_pubkey for out in tx.outputs} | {
        spent[each].script_pubkey for each in tx.inputs if each in spent
    }
