"""Twins: two lives that differ only in foreign unconfirmed transactions send the same.

In BIP-37 mode peers receive the same bytes until the user rescans, but filtered blocks may be requested in another
order. In compact mode the client makes the same requests for every block up to the height of first sight.

Broadcasts do not count. The same holds for reactions to transactions that a peer announced: getdata, and filteradd with
their inputs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product, zip_longest
from pathlib import Path

from simulation.foreign import ForeignTraffic, Steady, without
from simulation.host import Make
from simulation.keychain import Keychain
from simulation.plan import Plan
from simulation.record import Record
from simulation.schedule import moment, schedule_chain
from simulation.timeline import Timeline
from simulation.violation import Violation
from simulation.world import Placed, World
from spvfilter.light.engine.options import Options
from spvfilter.light.events import Mode
from spvfilter.store.store import Store
from spvfilter.wire.messages.filters import GetCFilters
from spvfilter.wire.messages.table import GetData, Inv, InvType

_HEADER_SIZE = 24  # bytes of a message's header
_RANDOM = ("version", "pong")  # messages with a nonce
_IGNORED = ("inv", "tx", "filteradd", "ping")  # a client also pings a peer that it has not heard for a while
_SETTLE_S = 1_200.0
_BLOCKS = (InvType.BLOCK, InvType.WITNESS_BLOCK)


@dataclass
class Wire:
    """Messages that the client sent, by host, in order."""

    messages: dict[str, list[tuple[str, bytes]]]
    """Command and payload. The payload is empty if it contains a nonce."""

    def keep(self, host: str, data: bytes) -> None:
        """Note bytes that were sent: complete messages."""
        at = 0
        while at < len(data):
            command = data[at + 4 : at + 16].rstrip(b"\0").decode("ascii")
            size = int.from_bytes(data[at + 16 : at + 20], "little")
            payload = data[at + _HEADER_SIZE : at + _HEADER_SIZE + size]
            self.messages.setdefault(host, []).append((command, b"" if command in _RANDOM else payload))
            at += _HEADER_SIZE + size

    def comparable(self, foreign: set[bytes]) -> dict[str, list[tuple[str, bytes]]]:
        """The messages without broadcasts, and without requests for transactions with these hashes.

        The client announces its own transactions to peers in a random order, at random times.
        """
        own = {
            item.hash
            for sent in self.messages.values()
            for command, payload in sent
            if command == "inv"
            for item in Inv.parse(payload).items
        }
        return {
            host: [each for each in map(partial(_stripped, foreign | own), sent) if each]
            for host, sent in self.messages.items()
        }


def _stripped(hashes: set[bytes], message: tuple[str, bytes]) -> tuple[str, bytes] | None:
    if message[0] != "getdata":
        return None if message[0] in _IGNORED else message
    items = GetData.parse(message[1]).items
    left = without(items, hashes)
    return message if left == items else ("getdata", bytes(GetData(left))) if left else None


class _Kept(Record):
    """A record that keeps the messages of the client."""

    def __init__(self, record: Record, sent: Wire) -> None:
        self.__dict__ = record.__dict__
        self._sent = sent

    def keep_wire(self, host: str, data: bytes) -> None:
        super().keep_wire(host, data)
        self._sent.keep(host, data)


@dataclass
class _Twin:
    world: World
    traffic: ForeignTraffic
    sent: Wire


def happen(
    plan: Plan,
    make: Make,
    folder: Path,
    record: Callable[[Timeline], Record],
    begin: Callable[[World], None],
) -> None:
    """Live both lives, and compare them. `begin` is called with each world. Raises Violation."""
    silent, loud = (_live(plan, make, folder, record, begin, is_silent=is_silent) for is_silent in (True, False))
    _compare_books(silent.world, loud.world)
    one, other = (twin.sent.comparable(loud.traffic.hashes) for twin in (silent, loud))
    if plan.mode is Mode.BIP37:
        _compare_messages(one, other)
    else:
        _compare_requests(loud, one, other)


def _live(
    plan: Plan,
    make: Make,
    folder: Path,
    record: Callable[[Timeline], Record],
    begin: Callable[[World], None],
    *,
    is_silent: bool,
) -> _Twin:
    rng, sent = random.Random(f"{plan.seed} {plan.mode} twins"), Wire({})
    options = Options(mode=plan.mode, keep_filters=rng.random() < 0.3, from_height=rng.choice([None, 0, 0, 100]))
    has_keychain, has_user = rng.random() < 0.5, rng.random() < 0.3
    placed = [Placed(Steady, f"10.{number}.0.{number}", [f"10.{number}.0.{number}:18444"]) for number in range(1, 4)]
    world = World(
        rng,
        make,
        options,
        placed,
        folder / ("silent.db" if is_silent else "loud.db"),
        lambda timeline: _Kept(record(timeline), sent),
        is_prompt=True,
        keychain=Keychain(random.Random(f"{plan.seed} keychain")) if has_keychain else None,
        user=random.Random(f"{plan.seed} {plan.mode} user") if has_user else None,
    )
    begin(world)
    if options.mode is not Mode.COMPACT:  # by BIP-37 a rescan asks about pending payments
        world.rescan = _no_rescan  # type: ignore[method-assign]
    traffic = ForeignTraffic(random.Random(f"{plan.seed} {plan.mode} foreign"), world, is_silent=is_silent)
    duration = rng.uniform(900, 3_600)
    world.boot()
    schedule_chain(world, duration, ("reorg", "entries", "mempool"))
    for _ in range(rng.choice([0, 1, 2, 3])):
        world.at(moment(rng, duration), "killed", world.kill)
    if world.user is not None:
        world.user.schedule(duration)
    traffic.schedule(duration)
    world.at(duration, "a rescan from 0", partial(world.rescan, 0))
    world.timeline.run(duration + _SETTLE_S)
    return _Twin(world, traffic, sent)


def _no_rescan(first: int) -> None:
    """Do nothing in place of a rescan from this height."""


def _compare_books(silent: World, loud: World) -> None:
    """True: both wallets have the same matches in blocks, and search the same windows."""
    for world in (silent, loud):
        if world.process is None or world.process.disk.store.tip != world.truth.height:
            raise Violation("alive", "a twin is not at the tip")
    assert silent.process is not None
    assert loud.process is not None
    if silent.process.stored() != loud.process.stored():
        raise Violation("twins", "foreign unconfirmed transactions change the matches in blocks")
    own = [_own_statuses(process.disk.store) for process in (silent.process, loud.process)]
    if own[0] != own[1]:
        raise Violation("twins", f"foreign unconfirmed transactions change own ones from {own[0]} to {own[1]}")
    used = [[sorted(chain.used) for chain in world.watch.keychains] for world in (silent.process, loud.process)]
    if used[0] != used[1]:
        raise Violation("twins", f"foreign unconfirmed transactions change used indexes from {used[0]} to {used[1]}")


def _own_statuses(store: Store) -> dict[str, str]:
    own = (entry for entry in store.views.history(limit=None) if entry.is_own)
    return {entry.txid[::-1].hex(): str(entry.status) for entry in own}


def _compare_messages(silent: dict[str, list[tuple[str, bytes]]], loud: dict[str, list[tuple[str, bytes]]]) -> None:
    """Quiet: every host received the same messages.

    A client asks for headers every 30 minutes. At the end of a life, only one twin may have come to the last question.
    """
    for host, is_request in product(sorted(silent.keys() | loud.keys()), (False, True)):
        given = silent.get(host, []), loud.get(host, [])
        pair = [_requested(messages) if is_request else _unrequested(messages) for messages in given]
        length = min(map(len, pair))
        lasts = [command for messages in pair for command, _ in messages[length:]]
        compared = zip(*pair, strict=False) if lasts == ["getheaders"] else zip_longest(*pair)
        for number, (one, other) in enumerate(compared):
            if one != other:
                raise Violation(
                    "twins",
                    f"message {number} to {host} is {_named(other)} with foreign traffic, {_named(one)} without",
                )


def _requested(messages: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Each requested block in a message of its own, by kind and hash."""
    items = (item for command, payload in messages if command == "getdata" for item in GetData.parse(payload).items)
    blocks = sorted(item for item in items if item.kind in (*_BLOCKS, InvType.FILTERED_BLOCK))
    return [("getdata", bytes(GetData((item,)))) for item in blocks]


def _unrequested(messages: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The messages except for getdata."""
    return [message for message in messages if message[0] != "getdata"]


def _named(message: tuple[str, bytes] | None) -> str:
    return "missing" if message is None else f"{message[0]} {message[1][:40].hex()} ({len(message[1])} bytes)"


def _compare_requests(
    loud: _Twin, one: dict[str, list[tuple[str, bytes]]], other: dict[str, list[tuple[str, bytes]]]
) -> None:
    """Quiet: blocks up to the height of first sight, and filters, were requested the same number of times.

    A window may grow once or twice for the same uses: this depends on which blocks come together. With a keychain the
    numbers of requests are therefore not compared.
    """
    first = loud.traffic.told[0]
    limit = min([first.height, *(height for time, height in loud.world.truth.forks if time >= first.time)])
    counted = [_requests(loud.world, limit, sent.values()) for sent in (one, other)]
    for request in counted[0].keys() | counted[1].keys():
        silent, with_traffic = counted[0][request], counted[1][request]
        if loud.world.keychain is not None:
            silent, with_traffic = min(silent, 1), min(with_traffic, 1)
        if silent != with_traffic:
            raise Violation(
                "twins",
                f"{request[0]} at {request[1]} was requested {with_traffic} times with foreign traffic, {silent} times"
                f" without; the height of first sight is {limit}",
            )


def _requests(world: World, limit: int, sent: Iterable[list[tuple[str, bytes]]]) -> Counter[tuple[str, int]]:
    """Number of requests for each block and filter up to a height."""
    found = Counter[tuple[str, int]]()
    for command, payload in (each for messages in sent for each in messages):
        if command == "getdata":
            for item in GetData.parse(payload).items:
                block = world.truth.block(item.hash) if item.kind in _BLOCKS else None
                if block is not None and block.height <= limit:
                    found["block", block.height] += 1
        elif command == "getcfilters":
            asked = GetCFilters.parse(payload)
            block = world.truth.block(asked.stop_hash)
            assert block is not None
            for height in range(asked.start_height, min(block.height, limit) + 1):
                found["filter", height] += 1
    return found
