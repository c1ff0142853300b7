"""A peer announces a true spend and sends it with another witness: a peer that announced it too sends the right one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulation.behaviours.bloom import Liar
from spvfilter import signing
from spvfilter.light.events import Mode
from spvfilter.light.lies import Lie
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wire.events import Settings
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message
from support.blocks.locks import STRANGER, build_tx
from support.client.stage import Prompt, Stage, stage
from support.vectors import first_of

pytestmark = pytest.mark.descriptors
_TXS = (InvType.TX, InvType.WITNESS_TX, InvType.WTX)


class _Breaks(Responder):
    """Sends chosen bytes for every transaction that is requested."""

    sent = b""

    def on_message(self, message: Message) -> None:
        if self.sent and isinstance(message, wire.GetData) and message.items[0].kind in _TXS:
            self.send(wire.Tx(self.sent))
        else:
            super().on_message(message)


class ByTxid(Prompt):
    """An honest node that announces transactions by txid."""

    def settings(self, view: Regtest) -> Settings:
        return replace(super().settings(view), wtxid_relay=False)


class Breaks(Liar, ByTxid):
    """Announces true transactions by txid, and sends them with another witness."""

    responder = _Breaks


def broken(raw: bytes, way: str) -> bytes:
    """The same transaction with another witness."""
    tx = Transaction.parse(raw)
    signature, key = tx.witnesses[0]
    witness = {
        "stripped": (),
        "unsigned": (b"", key),
        "wrong": (signature[:20] + bytes((signature[20] ^ 1,)) + signature[21:], key),
        "longer": (b"", signature, key),
    }[way]
    outputs = [TxOut(out.value, out.script_pubkey) for out in tx.outputs]
    txin = TxIn(OutPoint.parse(tx.inputs[0]), tx.script_sigs[0], witness, tx.sequences[0])
    made = signing.build_tx([txin], outputs, version=tx.version, lock_time=tx.lock_time)
    assert Transaction.parse(made).txid == tx.txid
    return made


def spend(world: Stage) -> bytes:
    """Fund the wallet and return a signed spend of a coin with a witness, which no node has."""
    for _ in range(8):
        world.truth.receive()
    world.truth.mine()
    world.boot()
    world.wait_synced(within=60)
    world.pass_time(30)
    coin = next(each for each in world.truth.coins if each.lock.script_pubkey[:2] == b"\x00\x14")
    return build_tx([coin.spend()], [STRANGER.pays(coin.value - 1_000)])


def announce(world: Stage, raw: bytes, sent: bytes) -> None:
    """The first node announces a transaction by its txid, and has other bytes of it."""
    for end in world.nodes[0].ends:
        assert isinstance(end.responder, _Breaks)
        end.responder.sent = sent
        end.responder.send(wire.Inv((InvItem(InvType.TX, Transaction.parse(raw).txid),)))
        end.work()


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
@pytest.mark.parametrize("way", ["stripped", "unsigned", "wrong", "longer"])
@pytest.mark.parametrize("kind", [Prompt, ByTxid])
@pytest.mark.parametrize("later_s", first_of(2, None, 0.05, 0.0, 5.0))
def test_the_next_announcer_is_asked_after_broken_bytes(
    mode: Mode, way: str, kind: type[Prompt], later_s: float | None, tmp_path: Path
) -> None:
    """The honest nodes announce the spend before the liar does (None), or some time after it."""
    with stage(tmp_path, mode, Breaks, kind, kind) as world:
        raw = spend(world)
        tx = Transaction.parse(raw)
        if later_s is None:
            world.truth.regtest.submit_tx(raw)
        announce(world, raw, broken(raw, way))
        if later_s is not None:
            world.pass_time(later_s)
            world.truth.regtest.submit_tx(raw)
        world.pass_time(60)
        views = world.running.disk.store.views
        entry = views.transaction(tx.txid)
        assert entry is not None
        assert (entry.status, entry.raw) == (TxStatus.PENDING, raw)
        assert [coin.spent_by for coin in views.coins() if coin.outpoint == OutPoint.parse(tx.inputs[0])] == [tx.txid]
        assert {each.error.cause for each in world.warnings} <= {Lie.WRONG_SIGNATURE}  # type: ignore[attr-defined]
        assert not world.banned & {each for node in world.nodes[1:] for each in node.addresses}
