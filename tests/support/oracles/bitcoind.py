"""A real Bitcoin Core on regtest as a child process, named by the variable BITCOIND. No assertions.

It listens on loopback only, and keeps its files in the folder that the test gives.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

PATIENCE_S = 60  # for anything
_STARTING = -28  # error code of JSON-RPC while Core loads its files
OPTIONS = (
    *("-chain=regtest", "-listen=1", "-rpcbind=127.0.0.1", "-rpcallowip=127.0.0.1", "-connect=0", "-dnsseed=0"),
    *("-fixedseeds=0", "-discover=0", "-listenonion=0", "-natpmp=0", "-printtoconsole=0", "-fallbackfee=0.0001"),
    *("-blockfilterindex=1", "-peerblockfilters=1", "-peerbloomfilters=1", "-txindex=1"),
    "-whitelist=noban@127.0.0.1",  # it then announces transactions at once, which keeps the tests short
    *("-keypool=100", "-unsafesqlitesync=1"),  # wallets cost seconds otherwise; a kill loses nothing
)
# Linux gives out ports above these: another server could get such a port before the node listens on it.
_PORTS = iter(random.sample(range(20_000, 32_768), 12_768))


def free_port() -> int:
    """A free port, which this process gives out only once."""
    for port in _PORTS:
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def satoshi(amount: Decimal | int | str) -> int:
    """Satoshi of an amount in coins, as the RPC states it."""
    return int((Decimal(amount) * 100_000_000).to_integral_value())


class RpcError(Exception):
    """Core refused a call."""

    def __init__(self, method: str, error: Any) -> None:
        super().__init__(f"{method}: {error}")
        self.code = error.get("code") if isinstance(error, dict) else None


class Bitcoind:
    """A node that can be stopped, killed and started again in its folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self.rpc_port = free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Its address for RPC and REST."""
        return f"http://127.0.0.1:{self.rpc_port}"

    @property
    def peer(self) -> str:
        """Its address for a client."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start the node, and return once it answers."""
        self._process = await asyncio.create_subprocess_exec(
            os.environ["BITCOIND"],
            f"-datadir={self.folder}",
            f"-bind=127.0.0.1:{self.port}",
            f"-rpcport={self.rpc_port}",
            *OPTIONS,
            *self.options,
        )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await self.call("getblockcount")
                    return
                except RpcError as error:
                    if error.code != _STARTING:
                        raise
                except OSError:  # it does not listen yet, or has not written its cookie
                    if self._process.returncode is not None:
                        raise
                await asyncio.sleep(0.1)

    async def stop(self, *, kill: bool = False) -> None:
        """End the node, by a call or by SIGKILL."""
        process, self._process = self._process, None
        if process is None:
            return
        if not kill:
            with suppress(RpcError, OSError, TimeoutError):
                await self.call("stop")
                async with asyncio.timeout(PATIENCE_S):
                    await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()

    async def call(self, method: str, *params: object, wallet: str | None = None, **named: object) -> Any:
        """Call a method of the RPC, with parameters by position or by name. Amounts are returned as Decimal."""
        return await asyncio.to_thread(self._call, method, params or named, wallet)

    def _call(self, method: str, params: object, wallet: str | None) -> Any:
        cookie = (self.folder / "regtest/.cookie").read_bytes()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.rpc_port}/{'' if wallet is None else f'wallet/{wallet}'}",
            json.dumps({"method": method, "params": params, "id": 1}, default=str).encode(),
            {"Authorization": f"Basic {base64.b64encode(cookie).decode()}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                return json.loads(response.read(), parse_float=Decimal)["result"]
        except urllib.error.HTTPError as error:
            raise RpcError(method, json.loads(error.read() or b"{}").get("error", error.code)) from None


@asynccontextmanager
async def running_bitcoind(folder: Path, *options: str) -> AsyncIterator[Bitcoind]:
    """A node in a new folder, with additional options. It stops at the end of the block."""
    node = Bitcoind(folder, *options)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()
