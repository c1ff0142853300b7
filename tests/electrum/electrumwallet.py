"""The wallet Electrum as a daemon in a child process, with its own home, controlled by its JSON-RPC."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import urllib.error
import urllib.request
from ast import literal_eval
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

PROGRAM = Path("/usr/bin/electrum")
_START_S = 60.0
_WAIT_S = 60.0


class ElectrumDaemon:
    """`electrum daemon` on regtest, which asks only one server."""

    def __init__(self, home: Path, server_port: int) -> None:
        self.home = home
        self._server = f"127.0.0.1:{server_port}:t"

    async def __aenter__(self) -> Self:
        folder = self.home / ".electrum/regtest"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"rpcuser": "u", "rpcpassword": "p", "rpcsock": "tcp", "rpchost": "127.0.0.1"}
        (folder / "config").write_text(json.dumps({**settings, "check_updates": False}), encoding="utf-8")
        self._child = self._start()

        async def is_connected() -> bool:
            assert self._child.poll() is None, "Electrum has ended"
            try:
                return bool((await self.call("getinfo"))["connected"])
            except OSError:
                return False

        try:
            await self.until(is_connected, _START_S)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    def _start(self) -> subprocess.Popen[bytes]:
        words = [str(PROGRAM), "--regtest", "daemon", "--oneserver", "--server", self._server]
        home = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        return subprocess.Popen(words, env=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def __aexit__(self, *error: object) -> None:
        self._child.terminate()
        await asyncio.to_thread(self._child.wait, 30)

    async def call(self, method: str, **arguments: object) -> Any:
        """Call a command of Electrum. Raises AssertionError if it fails."""
        return await asyncio.to_thread(self._call, method, arguments)

    def _call(self, method: str, arguments: dict[str, object]) -> Any:
        body = json.dumps({"id": 1, "method": method, "params": arguments}).encode()
        login = base64.b64encode(b"u:p").decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self._port()}/", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as opened:
                answer = json.load(opened)
        except urllib.error.HTTPError as refused:
            answer = json.load(refused)
        assert not answer.get("error"), f"{method}: {answer['error']}"
        return answer["result"]

    def _port(self) -> int:
        """The port that Electrum has chosen. Raises OSError if it has not chosen one yet."""
        written = (self.home / ".electrum/regtest/daemon").read_text(encoding="utf-8")
        if not written:
            raise ConnectionRefusedError("Electrum has no port yet")
        port: int = literal_eval(written)[1][1]
        return port

    async def until(self, condition: Callable[[], Awaitable[Any]], seconds: float = _WAIT_S) -> Any:
        """Repeat a request until the answer is true, and return it."""
        async with asyncio.timeout(seconds):
            while True:
                if found := await condition():
                    return found
                await asyncio.sleep(0.1)
