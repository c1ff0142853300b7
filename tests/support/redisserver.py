"""A private redis-server: started in a folder, without persistence, stopped by its pid."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_STARTING_S = 10


@dataclass(frozen=True)
class RedisServer:
    """A running server."""

    process: subprocess.Popen[bytes]
    url: str
    port: int  # 0 if it listens on a unix socket

    def kill(self) -> None:
        """Kill the server, as in a crash."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running_redis(folder: Path, *options: str, tcp: bool = False) -> Iterator[RedisServer]:
    """Start a server on a unix socket, or on a free loopback port."""
    port = _free_port() if tcp else 0
    path = folder / "redis.sock"
    place = ["--bind", "127.0.0.1"] if tcp else ["--unixsocket", str(path)]
    words = [
        "redis-server",
        "--port",
        str(port),
        *place,
        "--dir",
        str(folder),
        "--save",
        "",
        "--appendonly",
        "no",
        *options,
    ]
    with (
        (folder / "redis.log").open("ab") as log,
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            _wait(process, ("127.0.0.1", port) if tcp else str(path), folder / "redis.log")
            yield RedisServer(process, f"redis://127.0.0.1:{port}" if tcp else f"unix://{path}", port)
        finally:
            process.terminate()
            try:
                process.wait(_STARTING_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _free_port() -> int:
    """A free port whose cluster bus port, 10,000 above, is free too."""
    while True:
        with socket.socket() as bound, socket.socket() as bus, suppress(OSError, OverflowError):
            bound.bind(("127.0.0.1", 0))
            port: int = bound.getsockname()[1]
            bus.bind(("127.0.0.1", port + 10_000))
            return port


def _wait(process: subprocess.Popen[bytes], address: tuple[str, int] | str, log: Path) -> None:
    deadline = time.monotonic() + _STARTING_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as asking, suppress(OSError):
            asking.settimeout(1)
            asking.connect(address)
            asking.sendall(b"PING\r\n")
            if asking.recv(16).startswith(b"+PONG"):
                return
        time.sleep(0.01)
    raise RuntimeError(f"redis-server does not answer: {log.read_text(errors='replace')[-2000:]}")
