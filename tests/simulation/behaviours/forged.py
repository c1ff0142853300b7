"""Behaviours of nodes that announce unsigned or wrongly signed spends of the wallet's coins, or strip witnesses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simulation.behaviours.base import FULL, Behaviour
from simulation.behaviours.bloom import Liar
from simulation.behaviours.floods import Invents
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.primitives import TxOut
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wire.events import Service, Settings
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvType, Message
from support.blocks.locks import STRANGER, build_tx, is_signed
from support.client.regtests import announced

if TYPE_CHECKING:
    from simulation.node import NodeEnd
    from simulation.truth import Coin

_SHARED = 50  # most spends of other nodes that a node announces in a round
_TXS = (InvType.TX, InvType.WITNESS_TX, InvType.WTX)


class SpendsUnsigned(Invents):
    """Announces spends of the wallet's coins without signatures. Nodes of this kind also announce each other's."""

    number = 3

    def messages(self, end: NodeEnd) -> list[Message]:
        others = [tx_hash for tx_hash in self.world.forged if tx_hash not in self._invented]
        for raw in map(self.world.forged.__getitem__, self.rng.sample(others, min(_SHARED, len(others)))):
            tx = Transaction.parse(raw)
            self._invented[tx.txid] = self._invented[tx.wtxid] = raw
        assert end.session.ready is not None
        shared = [Transaction.parse(raw) for txid, raw in self.world.forged.items() if txid in self._invented]
        items = [announced(end.responder, tx) for tx in shared[-_SHARED:]]
        return [wire.Inv(tuple(items)), *super().messages(end)] if items else super().messages(end)

    def invent(self) -> bytes:
        coins = self._coins()
        if not coins:
            return super().invent()
        coin = self.rng.choice(coins)
        raw = build_tx([self._input(coin)], [self._output(coin)])
        self.world.forged[Transaction.parse(raw).txid] = raw
        return raw

    def _coins(self) -> list[Coin]:
        """Coins whose spends need a signature, and that the chain or the mempool contains."""
        mempool = self.world.truth.regtest.mempool
        coins = [coin for coin in self.world.truth.coins if is_signed(coin.lock)]
        return [coin for coin in coins if mempool.coin_of(bytes(coin.outpoint)) is not None]

    def _input(self, coin: Coin) -> TxIn:
        return TxIn(coin.outpoint)

    def _output(self, coin: Coin) -> TxOut:
        to = self.rng.choice([STRANGER, *self.world.truth.locks])
        return to.pays(self.rng.randrange(1, coin.value))


class SpendsWronglySigned(SpendsUnsigned):
    """Announces spends of the wallet's coins with valid signatures of other transactions."""

    def _input(self, coin: Coin) -> TxIn:
        signed = Transaction.parse(build_tx([coin.spend()], [STRANGER.pays(0)]))
        return replace(TxIn(coin.outpoint), script_sig=signed.script_sigs[0], witness=signed.witnesses[0])


class FloodsForgeries(SpendsUnsigned):
    """Announces hundreds of unsigned spends at once."""

    number = 300
    every_s = 600.0
    most = 4


class _StrippingResponder(Responder):
    def send(self, message: Message) -> None:
        super().send(wire.Tx(Transaction.parse(message.raw).stripped) if isinstance(message, wire.Tx) else message)


class StripsWitnesses(Liar):
    """Sends transactions without their witnesses, although it offers them. It announces txids."""

    responder = _StrippingResponder

    def settings(self, view: Regtest) -> Settings:
        return replace(super().settings(view), wtxid_relay=False)


class HasNoWitnesses(Behaviour):
    """A node from before segwit: it offers no witnesses, and its transactions have none."""

    is_full = False
    services = FULL & ~Service.WITNESS
    responder = _StrippingResponder

    def settings(self, view: Regtest) -> Settings:
        return replace(super().settings(view), wtxid_relay=False)


class _SilentResponder(Responder):
    def on_message(self, message: Message) -> None:
        if isinstance(message, wire.GetData):
            message = wire.GetData(tuple(item for item in message.items if item.kind not in _TXS))
        super().on_message(message)


class WithholdsAnnounced(Behaviour):
    """Announces transactions, and sends none of them."""

    is_full = False
    responder = _SilentResponder
