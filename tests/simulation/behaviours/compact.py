"""Behaviours of nodes that lie about compact filters (BIP-157, BIP-158)."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from simulation.behaviours.bloom import Liar
from spvfilter.filters.bip158 import basic_data, filter_elements
from spvfilter.hashes import sha256d
from spvfilter.node.blocktree import BlockTree, TreeBlock
from spvfilter.node.filterindex import FilterIndex, FilterRequest
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wire.messages.table import CFCheckpt, CFHeaders, CFilter, GetCFCheckpt, Message
from spvfilter.wire.session import Session

if TYPE_CHECKING:
    from simulation.world import World

Elements = Callable[[TreeBlock, set[bytes]], set[bytes]]


class FalseIndex(FilterIndex):
    """Filters with false elements."""

    def __init__(self, chain: BlockTree, change: Elements) -> None:
        super().__init__(chain)
        self._change = change

    def build(self, block: TreeBlock) -> bytes:
        outputs = [out.script_pubkey for tx in self.chain.txs(block) for out in tx.outputs]
        spent = [coin.script_pubkey for coin in (block.spent or {}).values()]
        return basic_data(block.hash, self._change(block, set(filter_elements(outputs, spent))))


class FalseFilters(Liar):
    """Serves false filters, with filter headers that commit to them. One index serves all connections."""

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self._index = FalseIndex(world.truth.regtest.chain, self.change)

    def respond(self, view: Regtest, session: Session) -> Responder:
        made = super().respond(view, session)
        made.filters = self._index
        return made

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        """The elements of its filter of a block, given the true ones."""
        return elements


class OmitsScripts(FalseFilters):
    """Leaves the wallet's scripts out of every second block's filter. All nodes of this class choose the same."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements - self.world.truth.scripts() if block.hash[5] % 2 else elements


class OmitsLate(FalseFilters):
    """Leaves the wallet's scripts out of the filters of blocks that arrive long after the client reached the tip."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements - self.world.truth.scripts() if block.height > 200 and block.hash[5] % 2 else elements


class AddsScripts(FalseFilters):
    """Adds elements to the filters of some blocks, and leaves elements out of later ones."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        if block.hash[5] % 8 == 0:
            return elements | {b"\x00\x14" + sha256(block.hash).digest()[:20]}
        return elements - self.world.truth.scripts() if block.height > 150 and block.hash[5] % 4 == 1 else elements


class HidesBehindDoubt(FalseFilters):
    """Adds an element where no block can disprove it, and leaves the wallet's scripts out of every second later block.

    The spend of a taproot or bare output does not show its script. If the block also pays that script, an added element
    cannot be disproved.
    """

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        spent = {coin.script_pubkey for coin in (block.spent or {}).values()}
        paid = {out.script_pubkey for tx in self.world.truth.regtest.chain.txs(block) for out in tx.outputs}
        if any(script[:1] == b"\x51" for script in spent & paid):
            return elements | {b"\x00\x14" + sha256(block.hash).digest()[:20]}
        return elements - self.world.truth.scripts() if block.height > 120 and block.hash[5] % 2 else elements


class OmitsSpent(FalseFilters):
    """Leaves out spent scripts that their inputs do not show."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        spent = {coin.script_pubkey for coin in (block.spent or {}).values()}
        paid = {out.script_pubkey for tx in self.world.truth.regtest.chain.txs(block) for out in tx.outputs}
        return elements - (spent - paid)


class OmitsOneScript(FalseFilters):
    """Leaves one script of the wallet out of all filters. It has its own index of the whole chain."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements - {self.world.truth.locks[1].script_pubkey}


class _TamperingResponder(Responder):
    """Changes responses about compact filters."""

    def __init__(self, regtest: Regtest, session: Session, tamper: Callable[[Message], Message | None]) -> None:
        super().__init__(regtest, session)
        self._tamper = tamper

    def send(self, message: Message) -> None:
        changed = self._tamper(message)
        if changed is not None:
            super().send(changed)


class Tampering(Liar):
    """Changes messages before they are sent."""

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _TamperingResponder(view, session, self.tamper)

    def tamper(self, message: Message) -> Message | None:
        """Return the message to send instead, or None to send nothing."""
        return message


class FalseHeaders(Tampering):
    """From some block on, its filter headers commit to filters that it does not have."""

    def tamper(self, message: Message) -> Message | None:
        if not isinstance(message, CFHeaders):
            return message
        hashes = tuple(sha256d(each) if each[0] < 12 else each for each in message.filter_hashes)
        return CFHeaders(message.filter_type, message.stop_hash, message.previous, hashes)


class Contradicting(Tampering):
    """Its filter headers contradict its earlier ones."""

    def tamper(self, message: Message) -> Message | None:
        if isinstance(message, CFHeaders) and self.rng.random() < 0.5:
            return CFHeaders(message.filter_type, message.stop_hash, self.rng.randbytes(32), message.filter_hashes)
        return message


class Equivocating(Tampering):
    """Answers the same request differently each time."""

    def tamper(self, message: Message) -> Message | None:
        if isinstance(message, CFHeaders) and self.rng.random() < 0.5:
            hashes = (*message.filter_hashes[:-1], self.rng.randbytes(32))
            return CFHeaders(message.filter_type, message.stop_hash, message.previous, hashes)
        return message


class FalseCheckpoints(Tampering):
    """Makes up filter header checkpoints."""

    def tamper(self, message: Message) -> Message | None:
        if isinstance(message, CFCheckpt):
            return CFCheckpt(
                message.filter_type, message.stop_hash, (*message.filter_headers[:-1], self.rng.randbytes(32))
            )
        return message


class MalformedFilters(Tampering):
    """Sends filters that cannot be decoded."""

    def tamper(self, message: Message) -> Message | None:
        if not isinstance(message, CFilter) or self.rng.random() < 0.7:
            return message
        data = message.data
        broken = self.rng.choice(
            [data[:-1], data + b"\x00\x00", b"\xfe\xff\xff\xff\x01" + data[1:], b"\xff" * 40, b"", data[:1]]
        )
        return CFilter(message.filter_type, message.block_hash, broken)


class OtherFilters(Tampering):
    """Serves true filter headers, but filters that match nothing."""

    def tamper(self, message: Message) -> Message | None:
        if isinstance(message, CFilter) and self.rng.random() < 0.3:
            return CFilter(message.filter_type, message.block_hash, b"\x00")
        return message


class WithholdsFilters(Tampering):
    """Leaves filters out of its answers."""

    def tamper(self, message: Message) -> Message | None:
        return None if isinstance(message, CFilter) and self.rng.random() < 0.2 else message


class UnaskedFilters(Tampering):
    """Sends filters and filter headers that no peer requested."""

    def tamper(self, message: Message) -> Message | None:
        if isinstance(message, CFilter) and self.rng.random() < 0.1:
            return CFilter(message.filter_type, self.rng.randbytes(32), message.data)
        return message


class _NoAnswerResponder(Responder):
    def on_filters_wanted(self, asked: FilterRequest) -> None:
        if isinstance(asked, GetCFCheckpt):
            super().on_filters_wanted(asked)


class FiltersNever(Liar):
    """Claims to serve compact filters, but never does. Core is silent in this way while its index lags."""

    is_honest = True
    responder = _NoAnswerResponder
