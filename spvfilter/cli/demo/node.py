"""The demo's node: serves a chain on a real socket, and counts what each connection sends and reveals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.kernel import walk_block
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.server import Node
from spvfilter.primitives import script_pushes
from spvfilter.protocol import ENVELOPE_SIZE
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import Message, command_of
from spvfilter.wire.session import Session


class WatchfulResponder(Responder):
    """A responder that counts what it sends and keeps the first filter it is sent."""

    def __init__(self, regtest: Regtest, session: Session) -> None:
        super().__init__(regtest, session)
        self.sent: Counter[str] = Counter()  # messages by command
        self.size = 0  # bytes sent
        self.told: Bip37Filter | None = None  # the first filter loaded

    def send(self, message: Message) -> None:
        self.sent[command_of(message)] += 1
        self.size += ENVELOPE_SIZE + len(bytes(message))
        super().send(message)

    def on_message(self, message: Message) -> None:
        if isinstance(message, wire.FilterLoad) and self.told is None:
            self.told = Bip37Filter.parse(bytes(message))
        super().on_message(message)


class DemoNode(Node):
    """A node that keeps its responders after their connections end."""

    def __init__(self, blocks: Iterable[bytes], clock: Callable[[], float]) -> None:
        self.seen: list[WatchfulResponder] = []
        super().__init__(Regtest(clock=clock), responder=self._watchful)
        for block in blocks:
            self.regtest.submit_block(block)

    def _watchful(self, regtest: Regtest, session: Session) -> WatchfulResponder:
        self.seen.append(responder := WatchfulResponder(regtest, session))
        return responder

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"

    def suspects(self, told: Bip37Filter) -> tuple[int, int]:
        """The number of scripts paid on the chain that a filter matches, any of which may be the wallet's, and the
        number of scripts.
        """
        scripts = {
            block.raw[start:end]
            for block in self.regtest.chain.active
            for tx in walk_block(block.raw)
            for _, start, end in tx.outputs
        }
        return sum(any(push in told for push in script_pushes(script)) for script in scripts), len(scripts)
