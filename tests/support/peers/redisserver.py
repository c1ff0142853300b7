"""A private redis-server: started in a folder, without persistence, stopped by its pid."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_STARTING_S = 30


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
    started = None
    while started is None:
        started = _started(folder, options, _free_port() if tcp else 0)
    try:
        yield started
    finally:
        _end(started.process)


def _started(folder: Path, options: tuple[str, ...], port: int) -> RedisServer | None:
    """A server that answers; None if another process took the port first."""
    path = folder / "redis.sock"
    place = ["--bind", "127.0.0.1"] if port else ["--unixsocket", str(path)]
    kept = ["--dir", str(folder), "--save", "", "--appendonly", "no"]
    words = ["redis-server", "--port", str(port), *place, *kept, *options]
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    if _answers(process, ("127.0.0.1", port) if port else str(path)):
        return RedisServer(process, f"redis://127.0.0.1:{port}" if port else f"unix://{path}", port)
    _end(process)
    said = (folder / "redis.log").read_text(errors="replace")[-2000:]
    if port and "Address already in use" in said:
        return None
    raise RuntimeError(f"redis-server does not answer: {said}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STARTING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    """A port that was free a moment ago, and whose cluster bus port, 10,000 above, was free too."""
    while True:
        with socket.socket() as bound, socket.socket() as bus, suppress(OSError, OverflowError):
            bound.bind(("127.0.0.1", 0))
            port: int = bound.getsockname()[1]
            bus.bind(("127.0.0.1", port + 10_000))
            return port


def _answers(process: subprocess.Popen[bytes], address: tuple[str, int] | str) -> bool:
    """Wait until this process answers. False if it ends, or does not answer in time."""
    deadline = time.monotonic() + _STARTING_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as asking, suppress(OSError):
            asking.settimeout(1)
            asking.connect(address)
            asking.sendall(b"INFO server\r\n")
            if b"\r\nprocess_id:%d\r\n" % process.pid in asking.recv(65_536):
                return True
        time.sleep(0.01)
    return False
