"""Processes of the command line that start in milliseconds: forks of one process that has imported the package.

A new interpreter needs 0.3 to 0.5 s for its imports. Here one process does them, once in a test run, and then waits.

For each command it forks. The child has the given arguments, environment, folder and streams, and runs `spvfilter` as
`python -m` does. At its end it does what an interpreter does, but for the removal of all modules.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "SPVFILTER_")
"""Beginnings of variables that the interpreter or the package reads once, at the start of a process."""


class Server:
    """The process that forks, as this process knows it."""

    def __init__(self, options: tuple[str, ...], at_start: tuple[tuple[str, str], ...]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(READ_AT_START)}
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *options, __file__, str(theirs.fileno())],
                stdin=subprocess.PIPE,  # streams of the kinds that most commands get
                stdout=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=kept | dict(at_start),
            )
        self._owner = os.getpid()
        atexit.register(self._end)

    def fork(self, request: object, streams: Sequence[int]) -> socket.socket:
        """Fork. The socket gives the child's process id, and at its end its status, as integers of 4 bytes."""
        ours, theirs = socket.socketpair()
        with theirs:
            self.hand_over(theirs, streams)
        data = json.dumps(request).encode()
        ours.sendall(struct.pack("i", len(data)) + data)
        return ours

    def hand_over(self, channel: socket.socket, streams: Sequence[int]) -> None:
        """Fork. The other end of the channel sends the request, and gets what `fork` describes."""
        socket.send_fds(self._socket, [b"."], [channel.fileno(), *streams])

    def _end(self) -> None:
        if os.getpid() == self._owner:  # else this process is a fork
            self._socket.close()
            self._process.communicate(timeout=60)


server = cache(Server)


class ForkedCommand:
    """A running command, with the names that subprocess.Popen has for its process."""

    def __init__(
        self, options: Sequence[str], argv: Sequence[str], streams: Sequence[int], environment: Mapping[str, str]
    ) -> None:
        at_start = tuple(sorted(item for item in environment.items() if item[0].startswith(READ_AT_START)))
        request = [list(argv), dict(environment), str(Path.cwd())]
        self._socket = server(tuple(options), at_start).fork(request, streams)
        self.pid = received(self._socket)
        self.returncode: int | None = None

    def wait(self, timeout: float) -> int:
        """Return the exit code, or the number of the signal that ended the process as a negative number."""
        if self.returncode is None:
            self._socket.settimeout(timeout)
            self.returncode = os.waitstatus_to_exitcode(received(self._socket))
            self._socket.close()
        return self.returncode


def received(stream: socket.socket) -> int:
    data = stream.recv(4, socket.MSG_WAITALL)
    if len(data) < 4:
        raise EOFError("the process that forks has ended")
    return int(struct.unpack("i", data)[0])


def import_package() -> None:
    """Import what most commands need, but nothing that starts a thread, as NumPy does."""
    import pkgutil

    import spvfilter

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "spvfilter runs with the pure Python kernel")  # tests of it start processes
        for package in ("cli", "light", "node", "scan", "store", "wallet", "watch"):
            folder = Path(spvfilter.__file__).parent / package
            for module in pkgutil.walk_packages([str(folder)], f"spvfilter.{package}."):
                __import__(module.name)


def requests(control: socket.socket) -> Iterator[list[int]]:
    """Sockets and streams of commands, until the tests end."""
    while True:
        data, streams, *_ = socket.recv_fds(control, 1, 4)
        if not data:
            return
        yield streams


def become_command(channel: socket.socket, streams: Sequence[int]) -> None:
    """Fork again, and report the child. In the child, which returns, read the request and become the command."""
    size = received(channel)
    argv, environment, folder = json.loads(channel.recv(size, socket.MSG_WAITALL))
    child = os.fork()
    if child:
        for stream in (0, 1, 2, *streams):
            os.close(stream)
        channel.sendall(struct.pack("i", child))
        _, status = os.waitpid(child, 0)
        with suppress(OSError):  # nobody waits for it
            channel.sendall(struct.pack("i", status))
        os._exit(0)
    channel.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for file in (sys.stdout, sys.stderr):
        file.reconfigure(line_buffering=file is sys.stderr or file.isatty())  # type: ignore[union-attr]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv[:] = ["spvfilter", *argv]
    sys.path[0] = folder


def wait_and_fork(control: socket.socket) -> bool:
    """Fork for each request. Returns True in the child, and False at the end of the tests."""
    for channel, *streams in requests(control):
        if not os.fork():
            control.close()
            become_command(socket.socket(fileno=channel), streams)
            return True
        for descriptor in (channel, *streams):
            os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
    return False


def end(code: int) -> None:
    """End as an interpreter does, but leave the modules alone: removing them copies the parent's memory, in 40 ms.

    Returns if standard output or error cannot be written, which the interpreter reports.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as no public function does
    atexit._run_exitfuncs()
    gc.collect()  # objects that nothing closed warn here
    with suppress(Exception):
        for file in (sys.stdout, sys.stderr):
            if file is not None:
                file.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())
    import_package()
    gc.collect()
    gc.freeze()  # else each child looks through all modules at its end
    with socket.socket(fileno=int(sys.argv[1])) as waiting:
        forked = wait_and_fork(waiting)
    if forked:
        try:
            runpy.run_module("spvfilter", run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            status = ended.code
        if isinstance(status, int):
            end(status)
        sys.exit(status)
