"""A pytest plugin for the tests of wallets: a regtest node and light clients, without asyncio and with it.

    pytest_plugins = ["spvfilter.testing"]  # in conftest.py

The fixture `regtest_node` is a RegtestNode with 101 blocks, `light_client` a function that makes clients of it.
Transactions are not signed and no script is checked. PYTEST_DONT_REWRITE: a test that imports this before pytest loads
it as a plugin gets no warning.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Protocol, TypeVar

try:
    import pytest
except ImportError as error:
    raise ImportError("spvfilter.testing needs pytest: pip install 'spvfilter[testing]'") from error

from spvfilter.address import address_to_script
from spvfilter.light.blocking import SyncLightClient
from spvfilter.network import REGTEST
from spvfilter.node.regtest import FEE, Regtest
from spvfilter.node.server import Node
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.watch.watchlist import WatchList

__all__ = ["LightClientFactory", "RegtestNode", "eventually", "light_client", "regtest_node"]

T = TypeVar("T")

_WAIT_S = 30.0
_TURN_S = 0.02


class RegtestNode:
    """A regtest node in a thread of its own; any thread may call it, and asynchronous tests, too: a call takes
    milliseconds.

    Txids are 32 bytes in wire order, values satoshi. Methods raise ParameterError, AddressError, RefusedError, which
    has Core's reason.
    """

    def __init__(self, blocks: int = 101) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="spvfilter-node", daemon=True)
        self._thread.start()
        self._node = asyncio.run_coroutine_threadsafe(self._opened(blocks), self._loop).result()

    async def _opened(self, blocks: int) -> Node:
        regtest = Regtest()
        regtest.mine(blocks)
        return await Node(regtest).__aenter__()

    def close(self) -> None:
        """Close every connection and end the thread."""
        with suppress(RuntimeError):  # closed before
            asyncio.run_coroutine_threadsafe(self._node.__aexit__(None, None, None), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def call(self, function: Callable[[Regtest], T]) -> T:
        """Run a function of the Regtest in the node's thread and return its result."""

        async def run() -> T:
            return function(self._node.regtest)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    @property
    def address(self) -> str:
        """HOST:PORT, for `peers` of a light client."""
        return f"{self._node.host}:{self._node.port}"

    @property
    def height(self) -> int:
        """Height of the best chain's tip."""
        return self.call(lambda regtest: regtest.height)

    @property
    def mempool(self) -> list[bytes]:
        """The txids of the mempool, parents first."""
        return self.call(lambda regtest: [tx.txid for tx in regtest.mempool])

    def mine(self, blocks: int = 1, *, to: str | None = None) -> list[bytes]:
        """Mine blocks with what is in the mempool, their coinbases for an address; returns their hashes."""
        script = None if to is None else address_to_script(to, REGTEST)
        return self.call(lambda regtest: regtest.mine(blocks, to=script))

    def reorg(self, depth: int) -> list[bytes]:
        """Replace the last blocks by one more, empty ones; their transactions return to the mempool.

        Returns the new hashes.
        """
        return self.call(lambda regtest: regtest.reorg(depth))

    def pay(self, address: str, value: int, *, fee: int = FEE) -> bytes:
        """Pay an address, as output 0 of a transaction in the mempool; returns its txid."""
        output = TxOut(value, address_to_script(address, REGTEST))
        return self.call(lambda regtest: regtest.pay(output, fee=fee))

    def spend(self, *coins: OutPoint, to: str, value: int, fee: int = FEE) -> bytes:
        """Spend coins as their owner would: pay an address; the change goes to the first coin's own.

        Returns the txid.
        """
        output = TxOut(value, address_to_script(to, REGTEST))
        return self.call(lambda regtest: regtest.spend(*coins, outputs=[output], fee=fee))

    def bump(self, txid: bytes, *, fee: int | None = None) -> bytes:
        """Regtest.bump: replace a transaction of the mempool by one with a higher fee; returns the new txid."""
        return self.call(lambda regtest: regtest.bump(txid, fee=fee))

    def double_spend(self, txid: bytes, *, fee: int | None = None, in_block: bool = False) -> bytes:
        """Regtest.double_spend: take what a transaction of the mempool spends away, there or in a block; returns the
        rival's txid.
        """
        return self.call(lambda regtest: regtest.double_spend(txid, fee=fee, in_block=in_block))

    def evict(self, txid: bytes) -> list[bytes]:
        """Regtest.evict: remove a transaction and its descendants from the mempool; the txids removed."""
        return self.call(lambda regtest: regtest.evict(txid))

    def submit(self, raw: bytes) -> bytes:
        """Put a transaction into the mempool; returns its txid."""
        return self.call(lambda regtest: regtest.submit_tx(raw))


class LightClientFactory(Protocol):
    """Makes an entered SyncLightClient of a watch list or of addresses, which has searched all blocks; it is left when
    the test ends.

    Further options are SyncLightClient's, such as `store`.
    """

    def __call__(self, watch: WatchList | Iterable[str], **options: object) -> SyncLightClient:
        """Raises what entering raises, TimeoutError if the node's tip is not reached within 30 s."""


def eventually(condition: Callable[[], T], *, seconds: float = _WAIT_S) -> T:
    """Wait until a condition holds and return what it gives. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() >= end:
            raise TimeoutError(f"within {seconds:g} s this did not become true: {condition}")
        time.sleep(_TURN_S)


@pytest.fixture
def regtest_node() -> Iterator[RegtestNode]:
    """A regtest node whose first coinbase may be spent."""
    node = RegtestNode()
    yield node
    node.close()


@pytest.fixture
def light_client(regtest_node: RegtestNode) -> Iterator[LightClientFactory]:
    """A function that makes light clients of `regtest_node`."""
    with ExitStack() as stack:

        def make(watch: WatchList | Iterable[str], **options: object) -> SyncLightClient:
            if isinstance(watch, str):
                raise TypeError("a watch list or an iterable of addresses expected, not one string")
            wanted = watch if isinstance(watch, WatchList) else WatchList.from_addresses(watch, REGTEST)
            options.setdefault("peers", [regtest_node.address])
            client = stack.enter_context(SyncLightClient(wanted, **options))  # type: ignore[arg-type]  # by name
            eventually(lambda: client.tip_height == regtest_node.height)
            return client

        yield make
