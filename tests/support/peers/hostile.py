"""A node that announces transactions of its own, and serves bytes that it was told to serve. No assertions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.server import SETTINGS, Node
from spvfilter.transaction import Transaction
from spvfilter.wire import Session, Settings
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message


class HostileNode(Node):
    """A node of a chain that other nodes share. Unless it is told otherwise, it behaves like them."""

    def __init__(self, regtest: Regtest, host: str, settings: Settings = SETTINGS) -> None:
        self.told: dict[bytes, bytes | None] = {}
        """Bytes that it serves for a wtxid or a txid; None: it does not answer."""
        self.announced: list[InvItem] = []
        self.requested: list[bytes] = []
        """Hashes that the client requested and that it did not serve as other nodes do, in order."""
        self.corrupt: Callable[[Transaction], bytes | None] | None = None
        """Returns what it serves instead of a transaction of its mempool, None for no answer."""
        super().__init__(regtest, host, responder=self._teller, settings=settings)

    def _teller(self, regtest: Regtest, session: Session) -> Responder:
        return _Teller(regtest, session, self)

    def tell(self, tx: Transaction, served: bytes | None, *, by: InvType = InvType.WTX) -> None:
        """Announce a transaction to everybody, and serve other bytes for it, or nothing."""
        self.told |= {tx.wtxid: served, tx.txid: served}
        self.announced.append(InvItem(by, tx.wtxid if by is InvType.WTX else tx.txid))
        for connection in self._connections:
            connection.wake()


class _Teller(Responder):
    def __init__(self, regtest: Regtest, session: Session, node: HostileNode) -> None:
        super().__init__(regtest, session)
        self._node = node
        self._is_asked = False
        self._at = 0

    def step(self) -> bool:
        items = self._node.announced[self._at : self._at + 1_000]
        if self.over is None and self._is_asked and items:
            self._at += len(items)
            self.send(wire.Inv(tuple(items)))
            return True
        return super().step()

    def on_message(self, message: Message) -> None:
        super().on_message(message)
        self._is_asked |= isinstance(message, wire.Mempool)

    def _answer_txs(self) -> None:
        item = self._requests[0]
        if item.hash in self._node.told:
            raw = self._node.told[item.hash]
        else:
            tx = self.regtest.find_tx(item.hash, by_wtxid=item.kind == InvType.WTX)
            if tx is None or self._node.corrupt is None:
                super()._answer_txs()
                return
            raw = self._node.corrupt(tx)
        self._requests.popleft()
        self._node.requested.append(item.hash)
        if raw is not None:
            self.send(wire.Tx(raw))


async def until(condition: Callable[[], Awaitable[object]], seconds: float = 30.0) -> None:
    """Wait until a condition is true, which asks a client or a server."""
    async with asyncio.timeout(seconds):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.02)
