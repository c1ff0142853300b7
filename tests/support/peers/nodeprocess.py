"""`spvfilter node` in a child process, controlled line by line, and a command whose output is read line by line while
it runs.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from support.commands.processes import WITH_SIGINT, command, environment

ADDRESS = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"  # BIP-173's program
OTHER = "bcrt1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qzf4jry"  # its script


class NodeProcess(NamedTuple):
    child: subprocess.Popen[bytes]
    port: int

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def do(self, *orders: str) -> list[str]:
        """Send commands, wait until they are done, and return the output."""
        assert self.child.stdin is not None
        self.child.stdin.write("".join(f"{order}\n" for order in (*orders, "status")).encode())
        self.child.stdin.flush()
        said: list[str] = []
        while not said or not said[-1].startswith("height "):
            said.append(line(self.child))
        return said[:-1]


def line(child: subprocess.Popen[bytes]) -> str:
    assert child.stdout is not None
    text = child.stdout.readline()
    assert text.endswith(b"\n"), "it has ended"
    return text.decode().rstrip("\n")


@contextmanager
def running(*argv: object) -> Iterator[subprocess.Popen[bytes]]:
    words = command(*argv, code=WITH_SIGINT)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as child:
        try:
            yield child
        finally:
            child.kill()


@contextmanager
def node_process(*argv: object) -> Iterator[NodeProcess]:
    """A node on a free port, with 110 blocks and no payments."""
    with running("node", "--port", 0, *argv) as child:
        words = line(child).replace(",", "").split()
        yield NodeProcess(child, int(words[words.index("port") + 1]))


def events_until(child: subprocess.Popen[bytes], *names: str) -> list[dict[str, Any]]:
    """JSON lines until each of these events has come."""
    events: list[dict[str, Any]] = []
    while not {event["event"] for event in events}.issuperset(names):
        events.append(json.loads(line(child)))
    return events
