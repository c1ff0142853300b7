"""A stand-in for the program `spvfilter`, which a shell starts in 20 ms: it has the command run by a forked process.

The program connects to the tests' process and hands over its streams. Then it waits for the command's end, passes on
Ctrl-C, and ends in the same way.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path

from support.commands.forkedcommands import READ_AT_START, server

_PROGRAM = """\
#!{python} -IS
import json, os, signal, socket, struct, sys

child, early = 0, []

def pass_on(number, frame):
    if not child:  # the command may have begun, but its number is still on the way
        early.append(number)
    else:
        os.kill(child, signal.SIGKILL if number == signal.SIGTERM else number)

signal.signal(signal.SIGINT, pass_on)
signal.signal(signal.SIGTERM, pass_on)
line = socket.socket(socket.AF_UNIX)
line.connect({path!r})
at_start = sorted(item for item in os.environ.items() if item[0].startswith({at_start!r}))
socket.send_fds(line, [json.dumps(at_start).encode()], [0, 1, 2])
line.recv(1)
request = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
line.sendall(struct.pack("i", len(request)) + request)
(child,) = struct.unpack("i", line.recv(4, socket.MSG_WAITALL))
for number in early:
    pass_on(number, None)
code = os.waitstatus_to_exitcode(*struct.unpack("i", line.recv(4, socket.MSG_WAITALL)))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
_MOST = 1 << 16  # bytes of the variables that a process reads at its start


class StandIn:
    """Puts the program into a new folder, and runs its commands until it is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        path = folder / "socket"
        self._waiting = socket.socket(socket.AF_UNIX)
        self._waiting.bind(str(path))
        self._waiting.listen()
        program = folder / "spvfilter"
        text = _PROGRAM.format(python=sys.executable, path=str(path), at_start=READ_AT_START)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Run no more commands."""
        self._waiting.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._thread.join()
        self._waiting.close()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._waiting.accept()
            except OSError:
                return
            with line:
                data, streams, *_ = socket.recv_fds(line, _MOST, 3)
                at_start = tuple((name, value) for name, value in json.loads(data))
                line.sendall(b".")
                server((), at_start).hand_over(line, streams)
                for each in streams:
                    os.close(each)
