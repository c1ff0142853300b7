"""DNS seeds: names that resolve to addresses of peers."""

from __future__ import annotations

from collections.abc import Iterable
from socket import SOCK_STREAM
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.errors import UselessPeerError
from spvfilter.p2p.address import Address

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")


async def resolve_seeds(names: Iterable[str], port: int) -> list[Address]:
    """Addresses from DNS seeds, all asked at once. Raises UselessPeerError if none of them answers."""
    loop = asyncio.get_running_loop()
    answers = await asyncio.gather(*(loop.getaddrinfo(name, port, type=SOCK_STREAM) for name in names), return_exceptions=True)
    found: dict[Address, None] = {}
    for answer in answers:
        if isinstance(answer, OSError):
            continue  # a seed that does not answer
        if isinstance(answer, BaseException):
            raise answer
        found.update((Address(str(place[0]), port), None) for _, _, _, _, place in answer)
    if not found:
        raise UselessPeerError("no DNS seed gave an address")
    return list(found)
