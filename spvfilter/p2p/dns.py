"""DNS seeds: host names that resolve to the addresses of peers with certain services."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from spvfilter.p2p.address import needed_proxy

SEED_S = 10.0  # seconds for the answers of one seed (our choice)
MAX_HOSTS = 256  # hosts used from one answer (our choice); a DNS answer over TCP may contain thousands

MAX_LOOKUPS = 10
"""Largest number of names that a process resolves at a time (our choice): all DNS seeds of a network."""

Resolve = Callable[[str], Awaitable[list[str]]]  # maps a name to its IPv4 and IPv6 addresses; raises OSError


class SeedHosts(NamedTuple):
    """The answer from one DNS seed: hosts of peers, or an error."""

    seed: str
    """Host name of the seed."""
    services: int
    """Bits of `wire.Service` that the hosts are said to offer; 0 if the seed was asked for all hosts."""
    hosts: tuple[str, ...]
    """IPv4 and IPv6 addresses that the seed returned, at most 256."""
    error: Exception | None
    """Why `hosts` is empty; None if it is not."""


async def ask_seeds(
    seeds: Iterable[str], services: int, resolve: Resolve | None = None, *, timeout_s: float = SEED_S
) -> list[SeedHosts]:
    """Ask all seeds at the same time for hosts with these services, and return their answers.

    A seed that does not know any is then asked for all its hosts.

    The first query is for the name xHEX.SEED, where HEX is `services`: x49 for compact filters, xd for BIP-37 (Core
    protocol.h, bitcoin-seeder). Several seeds know only x1, x5, x9 and xd. `timeout_s` limits both queries to one seed.
    If a seed fails, its answer contains the error.
    """
    names = list(seeds)
    if resolve is not None:
        return await asyncio.gather(*(_ask(name, services, resolve, timeout_s) for name in names))
    return await asyncio.gather(*(_ask(name, services, resolved, timeout_s) for name in names))


async def _ask(seed: str, services: int, resolve: Resolve, timeout_s: float) -> SeedHosts:
    error: Exception = OSError("returned no address")
    try:
        async with asyncio.timeout(timeout_s):
            for name, stated in ((f"x{services:x}.{seed}", services), (seed, 0)):
                try:
                    hosts = await resolve(name)
                # Any error, such as a name that cannot be encoded, or no free thread: the other seeds are still asked.
                except Exception as failed:
                    error = failed
                    continue
                if hosts:
                    return SeedHosts(seed, stated, tuple(hosts[:MAX_HOSTS]), None)
    except TimeoutError:
        error = TimeoutError(f"no answer within {timeout_s:g} s")
    return SeedHosts(seed, 0, (), error)


class Lookups:
    """Calls the system's resolver in daemon threads, so that a hanging resolver cannot delay the exit.

    All clients of the process share the threads. Each thread ends when no calls are waiting.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._threads = 0

    def call(self, look_up: Callable[[], None]) -> None:
        """Call a function that never raises. Raises RuntimeError if no thread is running and none can be started."""
        with self._lock:
            self._waiting.append(look_up)
            if self._threads >= MAX_LOOKUPS:
                return
            try:
                threading.Thread(target=self._run, name="spvfilter-dns", daemon=True).start()
                self._threads += 1
            except RuntimeError:
                if not self._threads:
                    self._waiting.clear()
                    raise

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                look_up = self._waiting.popleft()
            look_up()

    def forget(self) -> None:
        """Start over without threads, in a forked child, because the threads exist only in its parent."""
        self._lock, self._waiting, self._threads = threading.Lock(), deque(), 0


# the only state of the module: the limit applies to the process, whatever clients and event loops it has
LOOKUPS = Lookups()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LOOKUPS.forget)


async def resolved(name: str) -> list[str]:
    """Resolve a host name with the system's resolver, and return the IPv4 and IPv6 addresses.

    Raises OSError if the name cannot be resolved, or can be reached only through Tor or I2P. Raises UnicodeError if it
    cannot be encoded, and RuntimeError if no thread can be started.
    """
    if (why := needed_proxy(name)) is not None:
        raise OSError(why)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def tell(hosts: list[str], error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(hosts)
        else:
            answer.set_exception(error)

    def look_up() -> None:
        if answer.cancelled():  # nobody is waiting for the answer any more
            return
        hosts: list[str] = []
        error: Exception | None = None
        try:
            hosts = [str(place[0]) for _, _, _, _, place in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
        except Exception as failed:
            error = failed
        with suppress(RuntimeError):  # the event loop is closed, and nothing waits for the answer
            loop.call_soon_threadsafe(tell, hosts, error)

    LOOKUPS.call(look_up)
    return await answer
