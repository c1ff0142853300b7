"""Behaviours of nodes that lie about whole blocks and headers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from simulation.behaviours.base import Behaviour
from simulation.behaviours.bloom import Liar
from simulation.truth import copy_chain
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.build import BITS, mine
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder, stripped_block
from spvfilter.primitives import Header
from spvfilter.protocol import HEADER_SIZE, MAX_HEADERS
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message
from spvfilter.wire.session import Session
from support.client.regtests import cut

if TYPE_CHECKING:
    from simulation.node import Node


class _StrippingResponder(Responder):
    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        if kind == InvType.FILTERED_BLOCK:
            super().on_block_wanted(block, kind)
        else:
            self.send(wire.Block(stripped_block(block.raw)))


class Strips(Liar):
    """Sends blocks without their witnesses."""

    responder = _StrippingResponder


class _WrongBlockResponder(Responder):
    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        if kind == InvType.FILTERED_BLOCK:
            super().on_block_wanted(block, kind)
            return
        raw = block.raw
        match block.hash[6] % 4:
            case 0:  # a byte of a transaction
                raw = raw[:-5] + bytes((raw[-5] ^ 1,)) + raw[-4:]
            case 1:  # cut off
                raw = raw[:-1]
            case 2 if len(block.txids) > 1:  # the last transactions twice (CVE-2012-2459), if there are some
                txs = [tx.raw for tx in self.regtest.chain.txs(block)]
                doubled = txs + txs[-1:]
                raw = raw[:HEADER_SIZE] + bytes((len(doubled),)) + b"".join(doubled)
            case _:  # another block
                raw = self.regtest.chain.active[block.height - 1].raw
        self.send(wire.Block(raw))


class WrongBlocks(Liar):
    """Sends bytes that are not the block."""

    responder = _WrongBlockResponder


class Unasked(Liar):
    """Sends blocks, filtered blocks and transactions that no peer requested."""

    def begin(self, node: Node) -> None:
        self._again(node)

    def _again(self, node: Node) -> None:
        for end in list(node.ends):
            if end.session.ready is not None and end.is_open:
                block = self.rng.choice(node.view.chain.active[1:])
                messages: list[Message] = [
                    wire.Block(block.raw),
                    wire.MerkleBlock.from_txids(block.header, block.txids, [0]),
                    wire.Tx(node.view.chain.txs(block)[0].raw),
                    wire.NotFound((InvItem(InvType.WITNESS_BLOCK, block.hash),)),
                    wire.GetData((InvItem(InvType.WTX, block.hash),)),
                ]
                end.responder.send(self.rng.choice(messages))
                end.work()
        self.world.timeline.after(self.rng.expovariate(1 / 120), partial(self._again, node))


class Forked(Behaviour):
    """An honest node on a valid branch with less work: it lacks a block of the best chain."""

    is_full = False

    def view(self) -> Regtest:
        world = self.world
        view = copy_chain(world.truth.regtest, world.true_wall)
        length = self.rng.randrange(2, 40)
        cut(view, length)
        view.mine(length // 2)
        for block in view.chain.active[-(length // 2) :]:
            world.truth.others_blocks[block.hash] = block
        return view


def _invented(rng: random.Random, previous: bytes, time: int, *, valid: bool = True) -> bytes:
    """Make a header on top of a block. The header has no proof of work unless `valid`."""
    header = Header(0x20000000, previous, rng.randbytes(32), time, BITS, 0)
    if valid:
        return bytes(mine(header))
    while header.hash[31] <= 0x7F:
        header = replace(header, nonce=header.nonce + 1)
    return bytes(header)


class _InventingResponder(Responder):
    """Answers getheaders with headers that it makes up."""

    def __init__(self, regtest: Regtest, session: Session, rng: random.Random) -> None:
        super().__init__(regtest, session)
        self._rng = rng

    def _branch(self, height: int, length: int, *, valid: bool) -> list[bytes]:
        below = self.regtest.chain.active[height]
        previous, time, made = below.hash, below.header.time, []
        for at in range(length):
            raw = _invented(self._rng, previous, time + 600 * (at + 1), valid=valid or at < length - 1)
            previous = Header.parse(raw).hash
            made.append(raw)
        return made


class _InvalidWorkResponder(_InventingResponder):
    def send_headers(self, blocks: Sequence[TreeBlock]) -> None:
        if self._rng.random() < 0.5:
            super().send_headers(blocks)
        else:
            self.send(wire.Headers(tuple(self._branch(self.regtest.height, 3, valid=False))))


class _SpammingResponder(_InventingResponder):
    def send_headers(self, blocks: Sequence[TreeBlock]) -> None:
        super().send_headers(blocks)
        for _ in range(3):
            height = self._rng.randrange(0, max(1, self.regtest.height - 30))
            self.send(wire.Headers(tuple(self._branch(height, 20, valid=True))))


class _UnconnectedResponder(_InventingResponder):
    def send_headers(self, blocks: Sequence[TreeBlock]) -> None:
        super().send_headers(blocks)
        if self._rng.random() < 0.5:
            self.send(
                wire.Headers((_invented(self._rng, self._rng.randbytes(32), self.regtest.chain.tip.header.time),))
            )


class _RepeatingResponder(_InventingResponder):
    def on_getheaders(self, asked: wire.GetHeaders) -> None:
        self.send_headers(self.regtest.chain.active[1 : MAX_HEADERS + 1])


class InvalidWork(Liar):
    """Invents headers whose hashes do not meet their target."""

    kind: type[_InventingResponder] = _InvalidWorkResponder

    def respond(self, view: Regtest, session: Session) -> Responder:
        return self.kind(view, session, self.rng)


class SpamsHeaders(InvalidWork):
    """Sends short branches with little work that start at many heights."""

    kind = _SpammingResponder


class Unconnected(InvalidWork):
    """Sends headers that connect to nothing."""

    kind = _UnconnectedResponder


class Repeats(InvalidWork):
    """Answers every getheaders with the first 2,000 headers."""

    kind = _RepeatingResponder
