"""A chain of regtest with payments and spends of a wallet, for a scripted node and in files. No assertions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from spvfilter import REGTEST, WatchList
from spvfilter.node import Regtest
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.scan import BlockSpan
from support.blocks.chains import write_records
from support.blocks.locks import BIP173, build_tx
from support.blocks.undo import records_of, spent_of, write_undo
from support.peers.corenode import CoreNode

MINE = bytes.fromhex("0014751e76e8199196d454941c45d1b3a323f1433bd6")  # P2WPKH of the private key 1
ADDRESS = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"
ELSEWHERE = b"\x00\x14" + b"\x77" * 20
SPANS = [  # ranges of heights and times in which this chain has blocks
    BlockSpan(103),
    BlockSpan(0, 105),
    BlockSpan(104, 107),
    BlockSpan(None, None, 1_700_003_000),
    BlockSpan(109, 109),
    BlockSpan(None, None, None, 1_700_003_000),
    BlockSpan(2, 108, 1_700_001_000, 1_700_003_000),
]


def chain_of(regtest: Regtest) -> list[bytes]:
    return [block.raw for block in regtest.chain.active]


@dataclass(frozen=True)
class NodeChain:
    """Blocks from the genesis block to the tip."""

    blocks: tuple[bytes, ...]

    def node(self) -> CoreNode:
        node = CoreNode(list(self.blocks))
        node.spends(spent_of(self.blocks))
        return node

    def files(self, folder: Path, *, undo: bool = True) -> Path:
        write_records(folder / "blk00000.dat", self.blocks)
        if undo:
            write_undo(folder / "rev00000.dat", records_of(self.blocks)[1:])
        return folder


def watched() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_script(MINE, "mine")
    return watch


def paid_regtest(payments: int = 6) -> Regtest:
    """Payments to MINE from height 102 on. Two blocks later, every second one is spent."""
    clock = count(1_700_000_000, 60)  # times show the order of blocks
    regtest = Regtest(clock=lambda: float(next(clock)))
    regtest.mine(101)
    for number in range(payments):
        txid = regtest.pay(TxOut(50_000 + number, MINE))
        regtest.mine()
        if number % 2:
            coin = BIP173.spends(OutPoint(txid, 0), 50_000 + number)
            regtest.submit_tx(build_tx([coin], [TxOut(40_000 + number, ELSEWHERE), TxOut(9_000, MINE)]))
        regtest.mine()
    return regtest


@cache
def paid_chain() -> NodeChain:
    return NodeChain(tuple(chain_of(paid_regtest())))


def told(node: CoreNode, blocks: Sequence[bytes]) -> None:
    """Make these the node's best chain, with their spent outputs."""
    node.arrange(blocks)
    node.spends(spent_of(blocks))
