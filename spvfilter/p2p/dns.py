"""DNS seeds: names that resolve to addresses of peers, asked for those with certain services."""

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

SEED_S = 10.0  # for one seed's answers; ours
MAX_HOSTS = 256  # of one answer that are looked at; a DNS answer over TCP may have thousands

Resolve = Callable[[str], Awaitable[list[str]]]  # a name to its IPv4 and IPv6 addresses; raises OSError


class SeedHosts(NamedTuple):
    """What a seed has answered: hosts, the services that it states of them, or why there are none."""

    seed: str
    services: int
    """Bits of wire.Service; 0 if the seed was asked for all hosts."""
    hosts: tuple[str, ...]
    error: Exception | None


async def ask_seeds(
    seeds: Iterable[str], services: int, resolve: Resolve | None = None, *, timeout_s: float = SEED_S
) -> list[SeedHosts]:
    """Ask all seeds at once, each for hosts with these services, and for all hosts if it knows none of those.

    A seed that filters is asked by xHEX.SEED, x49 for compact filters and xd for BIP-37 (Core protocol.h,
    bitcoin-seeder). Several know only x1, x5, x9 and xd. Each has `timeout_s` for both answers. Failures are results.
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
                except (
                    Exception
                ) as failed:  # a name that cannot be encoded, no thread: none must keep the others from being asked
                    error = failed
                    continue
                if hosts:
                    return SeedHosts(seed, stated, tuple(hosts[:MAX_HOSTS]), None)
    except TimeoutError:
        error = TimeoutError(f"no answer within {timeout_s:g} s")
    return SeedHosts(seed, 0, (), error)


async def resolved(name: str) -> list[str]:
    """A name's addresses by the system's resolver, in a thread that keeps no process from ending: a resolver may hang
    for long.

    Raises OSError; UnicodeError for a name that cannot be encoded, RuntimeError where there can be no further thread.
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
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, hosts, error)

    threading.Thread(target=look_up, name="spvfilter-dns", daemon=True).start()
    return await answer
