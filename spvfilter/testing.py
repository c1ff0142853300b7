"""A pytest plugin for the tests of wallets: a regtest node and light clients, for tests with or without asyncio.

    pytest_plugins = ["spvfilter.testing"]  # in conftest.py

The `regtest_node` fixture is a RegtestNode with 101 blocks. The `light_client` fixture is a function that creates light
clients for this node. The node does not check scripts or signatures, but clients check the spends of their coins.

PYTEST_DONT_REWRITE: this word keeps pytest from warning about a test that imports this module before it is a plugin.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Protocol, TypeVar

from spvfilter.errors import remedy

try:
    import pytest
except ImportError as _error:
    raise ImportError(f"spvfilter.testing needs pytest; {remedy('testing')}") from _error

from spvfilter.address import address_to_script
from spvfilter.light.blocking import SyncLightClient
from spvfilter.network import REGTEST
from spvfilter.node.regtest import FEE, Regtest
from spvfilter.node.server import Node
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.watch.watchlist import WatchList

__all__ = ["LightClientFactory", "RegtestNode", "eventually", "light_client", "regtest_node"]

T = TypeVar("T")

_WAIT_S = 30.0  # seconds that `eventually` waits by default
_TURN_S = 0.02  # seconds between two checks of a condition


class RegtestNode:
    """A regtest node that runs in its own thread.

    Any thread and any asynchronous test may call its methods: a call takes milliseconds.

    Txids are 32 bytes in wire order, and values are satoshi. The methods raise ParameterError and AddressError for
    invalid arguments. They raise RefusedError, with Core's reject reason, if the node does not accept a transaction.
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
        """Close all connections of the node and end its thread."""
        with suppress(RuntimeError):  # already closed
            asyncio.run_coroutine_threadsafe(self._node.__aexit__(None, None, None), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def call(self, function: Callable[[Regtest], T]) -> T:
        """Call a function with the `Regtest` of the node, in the node's thread, and return its result."""

        async def run() -> T:
            return function(self._node.regtest)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    @property
    def address(self) -> str:
        """Address of the node as HOST:PORT, for the `peers` argument of a light client."""
        return f"{self._node.host}:{self._node.port}"

    @property
    def height(self) -> int:
        """Height of the tip of the node's best chain."""
        return self.call(lambda regtest: regtest.height)

    @property
    def mempool(self) -> list[bytes]:
        """Txids of all transactions in the node's mempool, parents first."""
        return self.call(lambda regtest: [tx.txid for tx in regtest.mempool])

    def mine(self, blocks: int = 1, *, to: str | None = None) -> list[bytes]:
        """Mine blocks with the transactions of the mempool, and return the block hashes.

        The coinbases pay the address `to`, or the miner if it is None.
        """
        script = None if to is None else address_to_script(to, REGTEST)
        return self.call(lambda regtest: regtest.mine(blocks, to=script))

    def reorg(self, depth: int) -> list[bytes]:
        """Replace the last `depth` blocks with `depth + 1` empty ones, and return the hashes of the new blocks.

        The transactions of the replaced blocks return to the mempool.
        """
        return self.call(lambda regtest: regtest.reorg(depth))

    def pay(self, address: str, value: int, *, fee: int = FEE) -> bytes:
        """Create a mempool transaction in which the miner pays an address, and return its txid.

        Output 0 pays `value` satoshi to the address. `fee` is in satoshi.
        """
        output = TxOut(value, address_to_script(address, REGTEST))
        return self.call(lambda regtest: regtest.pay(output, fee=fee))

    def spend(self, *coins: OutPoint, to: str, value: int, fee: int = FEE, keys: Iterable[bytes] = ()) -> bytes:
        """Spend anyone's coins in a new mempool transaction, and return its txid.

        The transaction pays `value` satoshi to the address `to`, and `fee` satoshi to the miner. Change goes to the
        address of the first coin. `keys` are the private keys of the coins, see `Regtest.spend`.
        """
        output = TxOut(value, address_to_script(to, REGTEST))
        return self.call(lambda regtest: regtest.spend(*coins, outputs=[output], fee=fee, keys=keys))

    def bump(self, txid: bytes | str, *, fee: int | None = None, keys: Iterable[bytes] = ()) -> bytes:
        """Replace a mempool transaction with a copy that pays a higher fee, and return the txid of the copy.

        `fee` is in satoshi. `Regtest.bump` explains the default. `keys` are private keys for coins that are not the
        miner's.
        """
        return self.call(lambda regtest: regtest.bump(txid, fee=fee, keys=keys))

    def double_spend(
        self, txid: bytes | str, *, fee: int | None = None, in_block: bool = False, keys: Iterable[bytes] = ()
    ) -> bytes:
        """Replace a mempool transaction with a payment of its coins to the miner, and return the new txid.

        If `in_block` is True, the new transaction is mined in a block instead. `fee` is in satoshi. See
        `Regtest.double_spend`. `keys` are private keys for coins that are not the miner's.
        """
        return self.call(lambda regtest: regtest.double_spend(txid, fee=fee, in_block=in_block, keys=keys))

    def evict(self, txid: bytes | str) -> list[bytes]:
        """Remove a transaction and its descendants from the mempool, and return their txids. See `Regtest.evict`."""
        return self.call(lambda regtest: regtest.evict(txid))

    def submit(self, raw: bytes) -> bytes:
        """Put a serialized transaction into the mempool, and return its txid."""
        return self.call(lambda regtest: regtest.submit_tx(raw))


class LightClientFactory(Protocol):
    """A function that starts a SyncLightClient and returns it once it has searched all blocks.

    The client is closed at the end of the test.

    `options` are keyword arguments of SyncLightClient, such as `store`.
    """

    def __call__(self, watch: WatchList | Iterable[str], **options: object) -> SyncLightClient:
        """Start a client for a watch list or for addresses, and return it.

        Raises TimeoutError if the client does not reach the node's tip within 30 s, and the same errors as
        SyncLightClient.
        """


def eventually(condition: Callable[[], T], *, seconds: float = _WAIT_S) -> T:
    """Call `condition` repeatedly until its result is true, and return this result.

    Raises TimeoutError if that takes more than `seconds` seconds.
    """
    end = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() >= end:
            raise TimeoutError(f"this condition did not become true within {seconds:g} s: {condition}")
        time.sleep(_TURN_S)


@pytest.fixture
def regtest_node() -> Iterator[RegtestNode]:
    """Fixture: a regtest node with 101 blocks, so that the first coinbase may be spent."""
    node = RegtestNode()
    yield node
    node.close()


@pytest.fixture
def light_client(regtest_node: RegtestNode) -> Iterator[LightClientFactory]:
    """Fixture: a function that starts light clients that connect to `regtest_node`."""
    with ExitStack() as stack:

        def make(watch: WatchList | Iterable[str], **options: object) -> SyncLightClient:
            if isinstance(watch, str):
                raise TypeError("expected a watch list or an iterable of addresses, not one string")
            wanted = watch if isinstance(watch, WatchList) else WatchList.from_addresses(watch, REGTEST)
            options.setdefault("peers", [regtest_node.address])
            client = stack.enter_context(SyncLightClient(wanted, **options))  # type: ignore[arg-type]  # by name
            eventually(lambda: client.tip_height == regtest_node.height)
            return client

        yield make
