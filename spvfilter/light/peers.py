"""Which peers a light client talks to: as many as wanted are kept connected, liars are left for good, the others tried again ever later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from socket import SOCK_STREAM
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.chain import HeaderChain
from spvfilter.errors import EnvelopeError, InvalidHeaderError, LieError, MessageError, PeerError, ProofError, UselessPeerError
from spvfilter.light.remote import Listener, Remote
from spvfilter.p2p.address import Address
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.connection import Connection
from spvfilter.p2p.limits import Limits
from spvfilter.p2p.proxy import Proxy
from spvfilter.wire.events import Settings

if TYPE_CHECKING:
    import asyncio
    import secrets
else:
    asyncio = deferred("asyncio")
    secrets = deferred("secrets")

LIES = (LieError, ProofError, InvalidHeaderError, EnvelopeError, MessageError)
LOST = (PeerError, OSError, TimeoutError)  # everything a peer or the way to it may do to us


class Peers:
    """Connected peers by address; `changed` is called when one comes or goes, `warn` with what each did wrong."""

    def __init__(
        self,
        addresses: Iterable[Address],
        settings: Settings,
        chain: HeaderChain,
        listener: Listener,
        *,
        warn: Callable[[Address, Exception, bool], None],
        changed: Callable[[], None],
        most: int = 8,
        proxy: Proxy | None = None,
        limits: Limits,
        clock: Clock,
    ) -> None:
        self.ready: dict[Address, Remote] = {}
        self.banned: set[Address] = set()
        self._candidates = dict.fromkeys(addresses, 0.0)  # those to whom nobody talks → the time from which on somebody may
        self._most = most
        self._settings = settings
        self._chain = chain
        self._listener = listener
        self._warn = warn
        self._changed = changed
        self._proxy = proxy
        self._limits = limits
        self._clock = clock
        self._busy = 0  # slots that talk, or try to
        self._failures: dict[Address, int] = {}
        self._causes: dict[Address, Exception] = {}  # why a connection was ended by us

    async def run(self) -> None:
        """Keep connected until cancelled, or until every peer has lied."""
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._most, len(self._candidates))):
                group.create_task(self._slot())

    @property
    def exhausted(self) -> bool:
        """Whether nobody is left to talk to: every peer lied."""
        return not self._candidates and not self.ready and not self._busy

    @property
    def connecting(self) -> int:
        """To how many peers a connection is being made."""
        return self._busy - len(self.ready)

    async def _slot(self) -> None:
        """Talk to one peer after the other, the one that may be tried soonest first."""
        while self._candidates:
            address = min(self._candidates, key=self._candidates.__getitem__)
            if (pause := self._candidates[address] - self._clock.monotonic()) > 0:
                await asyncio.sleep(pause)
                continue  # another slot may have taken it
            del self._candidates[address]
            self._busy += 1
            try:
                await self._talk(address)
            finally:
                self._busy -= 1
                if address not in self.banned:
                    self._candidates[address] = self._clock.monotonic() + self._pause(address)
                self._changed()

    def _pause(self, address: Address) -> float:
        """Seconds before a peer is tried again."""
        failures = min(self._failures.get(address, 0), 64)
        return min(self._limits.retry_s * 2.0 ** (failures - 1), self._limits.max_retry_s) if failures else 0.0

    async def _talk(self, address: Address) -> None:
        """One connection from its beginning to its end."""
        try:
            settings = replace(self._settings, start_height=self._chain.height)
            nonces = {remote.connection.nonce for remote in self.ready.values()}
            connection = await Connection.open(
                address, settings, proxy=self._proxy, limits=self._limits, clock=self._clock, own_nonces=nonces
            )
            remote = Remote(connection, self._chain, self._listener, salt=secrets.token_bytes(16), limits=self._limits, clock=self._clock)
            self.ready[address] = remote
            self._changed()
            try:
                await remote.run()
            finally:
                del self.ready[address]
        except LOST as error:
            self._lost(address, self._causes.pop(address, error))

    def _lost(self, address: Address, error: Exception) -> None:
        self._failures[address] = self._failures.get(address, 0) + 1
        lied = isinstance(error, LIES)
        if isinstance(error, TimeoutError) and not error.args:
            error = TimeoutError("no answer in time")
        if lied:
            self.banned.add(address)
        self._warn(address, error, lied)

    def leave(self, remote: Remote, error: Exception) -> None:
        """End the connection with a peer for what it did, or did not do."""
        if self.ready.get(remote.address) is remote:
            self._causes.setdefault(remote.address, error)
            remote.connection.close()

    def did_well(self, remote: Remote) -> None:
        """It was of use: should it go, it is tried again soon."""
        self._failures.pop(remote.address, None)

    def best(self, usable: Callable[[Remote], bool], *, but: Remote | None = None) -> Remote | None:
        """A peer that is usable, one that has failed least."""
        fitting = [remote for remote in self.ready.values() if remote is not but and usable(remote)]
        return min(fitting, key=lambda remote: self._failures.get(remote.address, 0), default=None)


async def resolve_seeds(names: Iterable[str], port: int) -> list[Address]:
    """Addresses from DNS seeds, all asked at once. Raises UselessPeerError where none of them answers."""
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
