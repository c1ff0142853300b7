"""The demo's node: serves a chain on a socket, and records the traffic and the filter of each connection."""

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


class RecordingResponder(Responder):
    """A responder that counts the messages it sends and keeps the first filter that it receives."""

    def __init__(self, regtest: Regtest, session: Session) -> None:
        super().__init__(regtest, session)
        self.sent: Counter[str] = Counter()  # messages by command
        self.size: int = 0  # bytes sent
        self.told: Bip37Filter | None = None  # the filter in the first filterload message

    def send(self, message: Message) -> None:
        self.sent[command_of(message)] += 1
        self.size += ENVELOPE_SIZE + len(bytes(message))
        super().send(message)

    def on_message(self, message: Message) -> None:
        if isinstance(message, wire.FilterLoad) and self.told is None:
            self.told = Bip37Filter.parse(bytes(message))
        super().on_message(message)


class DemoNode(Node):
    """A node that keeps its responders after their connections have ended."""

    def __init__(self, blocks: Iterable[bytes], clock: Callable[[], float]) -> None:
        self.seen: list[RecordingResponder] = []
        super().__init__(Regtest(clock=clock), responder=self._recording)
        for block in blocks:
            self.regtest.submit_block(block)

    def _recording(self, regtest: Regtest, session: Session) -> RecordingResponder:
        self.seen.append(responder := RecordingResponder(regtest, session))
        return responder

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"

    def suspects(self, told: Bip37Filter) -> tuple[int, int]:
        """Return how many scripts on the chain a filter matches, and how many scripts the chain contains.

        As far as the node can tell, each matching script may belong to the wallet.
        """
        scripts = {
            block.raw[start:end]
            for block in self.regtest.chain.active
            for tx in walk_block(block.raw)
            for _, start, end in tx.outputs
        }
        return sum(any(push in told for push in script_pushes(script)) for script in scripts), len(scripts)
