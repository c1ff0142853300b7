"""Quiet: in compact mode, peers cannot tell whether a fake unconfirmed payment belongs to the wallet.

The client must send the same messages in both worlds. With BIP-37 a peer has a filter of the wallet's scripts and can
tell, so this test does not apply. The client fetches whole blocks whose filters match. This is the same in both worlds,
because no block has the fake payment.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from simulation.behaviours import HONEST, Behaviour
from simulation.behaviours.floods import Invents
from simulation.engine import make
from simulation.node import Node
from simulation.record import Record
from simulation.world import Placed, World
from spvfilter.light.engine.options import Options
from spvfilter.light.events import Mode
from spvfilter.node.scripts import Lock, p2wpkh
from spvfilter.primitives import OutPoint
from spvfilter.signing import build_tx
from spvfilter.transaction import TxIn
from support.blocks.locks import key

PAID, UNPAID = p2wpkh(key(5_001)), p2wpkh(key(5_002))
HOSTS = ("10.1.0.1", "10.2.0.2", "10.3.0.3")
HOURS = 3


class InventsOne(Invents):
    """Announces one fake payment to PAID at some time."""

    number = 1
    most = 0
    every_s = 900.0

    def begin(self, node: Node) -> None:
        self.world.timeline.after(500.0, partial(self._again, node, 0))

    def invent(self) -> bytes:
        return build_tx([TxIn(OutPoint(bytes(32), 1))], [PAID.pays(123_456)])


def sent(seed: int, watched: Lock, folder: Path) -> tuple[dict[str, str], int]:
    """A digest of the bytes that each peer was sent, with their times; and the number of unconfirmed matches."""
    kinds: list[type[Behaviour]] = [HONEST, HONEST, InventsOne]
    placed = [Placed(kind, host, [f"{host}:18444"]) for kind, host in zip(kinds, HOSTS, strict=True)]
    options = Options(mode=Mode.COMPACT, mempool_groups=1)
    folder.mkdir()
    world = World(
        random.Random(seed),
        make,
        options,
        placed,
        folder / "wallet.db",
        lambda line: Record(lambda: line.now),
        is_prompt=True,
    )
    world.scripts.append(watched.script_pubkey)
    world.boot()
    for at in range(1, 6):
        world.at(at * 1_000.0, "strangers pay", partial(world.truth.others, 3))
        world.at(at * 1_400.0, "a block", world.truth.mine)
    world.timeline.run(HOURS * 3_600.0)
    assert world.process is not None
    waiting = len(world.process.books.waiting())
    world.process.disk.store.close()
    return {host: kept.hexdigest() for host, kept in world.record.wire.items()}, waiting


@pytest.mark.long
def test_peers_cannot_tell_whether_a_fake_payment_is_own(tmp_path: Path) -> None:
    for seed in range(2):
        ours, found = sent(seed, PAID, tmp_path / f"ours {seed}")
        others, nothing = sent(seed, UNPAID, tmp_path / f"others {seed}")
        assert (found, nothing) == (1, 0)
        assert ours == others
        assert len(ours) == len(HOSTS)
