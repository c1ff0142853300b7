"""DNS seeds: host names that resolve to the addresses of peers with certain services."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from spvfilter._public import deferred

if TYPE_CHECKING:
    import asyncio
    import threading
else:
    asyncio = deferred("asyncio")
    threading = deferred("threading")

SEED_S = 10.0  # seconds for the answers of one seed (our choice)
MAX_HOSTS = 256  # hosts used of one answer (our choice); a DNS answer over TCP may have thousands

Resolve = Callable[[str], Awaitable[list[str]]]  # maps a name to its IPv4 and IPv6 addresses; raises OSError


class SeedHosts(NamedTuple):
    """The answer of one DNS seed: hosts of peers, or an error."""

    seed: str
    """Host name of the seed."""
    services: int
    """Bits of `wire.Service` that the hosts are said to have; 0 if the seed was asked for all hosts."""
    hosts: tuple[str, ...]
    """IPv4 and IPv6 addresses that the seed returned, at most 256."""
    error: Exception | None
    """Reason why `hosts` is empty; None if `hosts` is not empty."""


async def ask_seeds(
    seeds: Iterable[str], services: int, resolve: Resolve | None = None, *, timeout_s: float = SEED_S
) -> list[SeedHosts]:
    """Ask all seeds at once for hosts with these services, and return their answers.

    A seed that knows no such host is then asked for all its hosts.

    The first question is for the name xHEX.SEED, where HEX is `services`: x49 for compact filters, xd for BIP-37 (Core
    protocol.h, bitcoin-seeder). Several seeds know only x1, x5, x9 and xd. `timeout_s` bounds both questions to one
    seed. The answer of a seed that fails contains the error.
    """
    names = list(seeds)
    if resolve is not None:
        return await asyncio.gather(*(_ask(name, services, resolve, timeout_s) for name in names))
    return await asyncio.gather(*(_ask(name, services, resolved, timeout_s) for name in names))


async def _ask(seed: str, services: int, resolve: Resolve, timeout_s: float) -> SeedHosts:
    error: Exception = OSError("gave no address")
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


async def resolved(name: str) -> list[str]:
    """Resolve a host name with the system's resolver in a daemon thread, so that a resolver that hangs delays no exit.

    Raises OSError if the name cannot be resolved, UnicodeError if it cannot be encoded, and RuntimeError if no thread
    can be started.
    """
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
        hosts: list[str] = []
        error: Exception | None = None
        try:
            hosts = [str(place[0]) for _, _, _, _, place in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
        except Exception as failed:
            error = failed
        with suppress(RuntimeError):  # the event loop is closed, and nothing waits for the answer
            loop.call_soon_threadsafe(tell, hosts, error)

    threading.Thread(target=look_up, name="spvfilter-dns", daemon=True).start()
    return await answer
