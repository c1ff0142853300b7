"""Network namespaces joined by a bridge: machines with their own addresses. They need root and iproute2. No
assertions.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")
_FOLDER = Path("/run/netns")  # folder of `ip netns add`
_CLONE_NEWNET = 0x40000000  # linux/sched.h


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def enter(namespace: str) -> None:
    """Move the calling thread into a network namespace: new sockets and children belong to it. Raises OSError."""
    file = os.open(_FOLDER / namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.setns(file, _CLONE_NEWNET):  # os.setns needs Python 3.12
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    finally:
        os.close(file)


def within(namespace: str, call: Callable[[], _T]) -> _T:
    """Return the result of a call in a thread within a network namespace."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            enter(namespace)
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="in-a-namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


class Network:
    """Machines on one bridge, with the addresses 10.99.0.1, 10.99.0.2 and so on.

    No other namespace can see them.
    """

    def __init__(self) -> None:
        self._name = f"spvfilter-{secrets.token_hex(4)}"
        self._made: list[str] = []
        self._hub = self._added("hub")
        _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "bridge", "up")

    def _added(self, name: str) -> str:
        namespace = f"{self._name}-{name}"
        _ip("netns", "add", namespace)
        self._made.append(namespace)
        return namespace

    def add(self, number: int) -> str:
        """The namespace of a new machine with the address 10.99.0.NUMBER."""
        namespace = self._added(str(number))
        _ip(
            "link",
            "add",
            "eth0",
            "netns",
            namespace,
            "type",
            "veth",
            "peer",
            "name",
            f"port{number}",
            "netns",
            self._hub,
        )
        _ip("-n", self._hub, "link", "set", f"port{number}", "master", "bridge", "up")
        _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("-n", namespace, "address", "add", f"10.99.0.{number}/24", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        return namespace

    def plug(self, number: int, *, is_in: bool) -> None:
        """Disconnect a machine, or connect it again. Packets are lost silently meanwhile."""
        _ip("-n", self._hub, "link", "set", f"port{number}", "up" if is_in else "down")

    def end(self) -> None:
        for namespace in reversed(self._made):
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)
        self._made.clear()


@cache
def can_be_made() -> bool:
    """Return True if this process may make network namespaces with a bridge."""
    if shutil.which("ip") is None or os.geteuid():
        return False
    try:
        network = Network()
    except (OSError, subprocess.CalledProcessError):
        return False
    try:
        network.add(1)
    except subprocess.CalledProcessError:
        return False
    finally:
        network.end()
    return True
