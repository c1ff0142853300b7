"""The --node and --tweaks options (`watch`, `electrum`): a node or a server helps to find silent payments."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeAlias, TypeVar

from spvfilter._public import deferred
from spvfilter.cli.credentials import add_credentials
from spvfilter.cli.term.page import complain
from spvfilter.errors import NodeRefusedError
from spvfilter.network import Network

if TYPE_CHECKING:
    import asyncio

    from spvfilter.rpc import blindbit, fullnode, patience
    from spvfilter.rpc.credentials import Credentials
    from spvfilter.rpc.endpoint import Endpoint
else:
    asyncio = deferred("asyncio")
    blindbit = deferred("spvfilter.rpc.blindbit")
    fullnode = deferred("spvfilter.rpc.fullnode")
    patience = deferred("spvfilter.rpc.patience")

T = TypeVar("T")
_PATIENCE_S = 10.0
"""Seconds for which a request is retried (our choice). After that, the client reports the problem and tries again
later.
"""


Helper: TypeAlias = "NodeSource | ServerSource"
"""The source that --node or --tweaks names."""


def add_node(parser: argparse.ArgumentParser) -> None:
    """Add --node, the options for its RPC credentials, and --tweaks."""
    group = parser.add_argument_group("silent payments", "A watch list with sp() needs --node or --tweaks.")
    group.add_argument(
        "--tweaks",
        metavar="URL",
        help=(
            "instead of --node, a BlindBit Oracle server, as https://HOST:PORT. It learns which blocks you search, but"
            " not your addresses. It can hide payments from you"
        ),
    )
    group.add_argument(
        "--node",
        metavar="URL",
        help=(
            "a full node that you trust, as http://HOST:PORT: it reports which outputs blocks spend. Bitcoin Core 30"
            " with -rest=1 needs no credentials"
        ),
    )
    add_credentials(group)


def warn_of_server(source: Helper | None) -> None:
    """Print a warning if a server could hide silent payments."""
    if isinstance(source, ServerSource):
        complain(
            f"warning: {source.endpoint} could hide silent payments, because nothing proves that it returns all tweaks"
        )


class _Source(Generic[T]):
    """A source that connects when the first block needs it. If that fails, the next call tries again.

    Use it as an asynchronous context manager.
    """

    def __init__(self, url: str, connect: Callable[[str], AbstractAsyncContextManager[T]]) -> None:
        from spvfilter.rpc.endpoint import Endpoint

        self.endpoint: Endpoint = Endpoint.parse(url)
        """The address of the node or server, as messages show it."""
        self._connect = connect
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._connected: T | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _opened(self) -> T:
        async with self._opening:
            if self._connected is None:
                self._connected = await self._stack.enter_async_context(self._connect(str(self.endpoint)))
            return self._connected


class NodeSource(_Source["fullnode.FullNode"]):
    """Asks a node for the outputs that blocks spend."""

    def __init__(self, url: str, network: Network, credentials: Credentials | None) -> None:
        super().__init__(
            url,
            lambda place: fullnode.FullNode.open(
                place, network, credentials=credentials, patience=patience.Patience(_PATIENCE_S)
            ),
        )

    async def undo_record(self, digest: bytes, previous: bytes, *, by_details: bool = False) -> bytes | None:
        """Return the outputs that a block spends, as `FullNode.undo_record` does. Raises NodeError."""
        node = await self._opened()
        record = await node.undo_record(digest, previous, by_details=by_details)
        if record is None:
            raise NodeRefusedError(
                f"{self.endpoint}: the node does not say which outputs blocks spend: use Bitcoin Core 30 with -rest=1,"
                " or Core 23 or later with --cookie FILE"
            )
        return record


class ServerSource(_Source["blindbit.BlindBitOracle"]):
    """Asks a tweak server for the tweaks of blocks."""

    def __init__(self, url: str, network: Network) -> None:
        super().__init__(url, lambda place: blindbit.BlindBitOracle.open(place, network))

    async def tweaks(self, height: int) -> tuple[bytes, Sequence[bytes]]:
        """Return the tweaks of the block at a height, as `BlindBitOracle.tweaks` does. Raises NodeError."""
        server = await self._opened()
        return await server.tweaks(height)
