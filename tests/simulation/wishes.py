"""Wishes: the open requests of a simulated user, and the height from which each script must then be searched."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from simulation import oracle
from simulation.violation import Violation
from spvfilter.errors import ParameterError
from spvfilter.kernel import EntryKind
from spvfilter.light.engine.requests import (
    AddEntries,
    RelabelEntries,
    RemoveAccount,
    RemoveEntries,
    RenameAccount,
    Request,
    Rescan,
    RevealAddress,
    SearchStart,
)

# Requests that are refused if the entry or the account was removed or renamed before.
_MAY_BE_GONE = (RelabelEntries, RemoveEntries, RemoveAccount, RenameAccount, RevealAddress)


class Watched(NamedTuple):
    """The height at which the search for a script must begin at the latest."""

    first: int


class Wishes:
    """The requests, in order. Each run makes the unanswered ones again, since they are lost with the process."""

    def __init__(self, scripts: Iterable[bytes], given: int | None) -> None:
        self._given = given  # start height given to each run
        self._lowest = given or 0  # lowest start height that the client was ever given
        self._current = self._lowest  # start height of this run
        self.watched = {script: Watched(self._lowest) for script in scripts}
        self.waiting: dict[int, Request] = {}  # by token
        self.labels: dict[bytes, str | None] = {}  # labels that the user gave to scripts
        self.ever = set(self.watched)  # scripts that were watched at any time
        self._all: dict[int, Request] = {}  # by token
        self.asked = 0
        """Number of requests so far."""

    def copy(self) -> Wishes:
        """The wishes as they are now."""
        made = Wishes((), self._given)
        made._lowest, made._current, made.asked = self._lowest, self._current, self.asked
        made.watched, made.waiting = dict(self.watched), dict(self.waiting)
        made.labels, made.ever = dict(self.labels), set(self.ever)
        return made

    def restored(self, before: Wishes) -> Wishes:
        """The wishes after a return to an earlier copy of the database: the user makes later requests again."""
        made = before.copy()
        made.asked, made.ever = self.asked, self.ever | before.ever
        later = {
            token: request
            for token, request in self._all.items()
            if token > before.asked and not isinstance(request, RevealAddress)
        }
        made.waiting |= later
        made._all = self._all
        return made

    def begin(self) -> None:
        """A run begins."""
        self._current = self._lowest if self._given is None else self._given

    def add(self, script: bytes, first: int | None) -> tuple[int, Request]:
        """Watch a script from a height on, or from the start of the client's search."""
        self.ever.add(script)
        return self._put(AddEntries(((EntryKind.SCRIPT, script, None),), SearchStart(first)))

    def remove(self, script: bytes) -> tuple[int, Request]:
        """Stop watching a script."""
        return self._put(RemoveEntries(((EntryKind.SCRIPT, script),)))

    def relabel(self, script: bytes, label: str | None) -> tuple[int, Request]:
        """Give a script another label."""
        return self._put(RelabelEntries(((EntryKind.SCRIPT, script, label),)))

    def ask(self, request: Request) -> tuple[int, Request]:
        """Make another request."""
        return self._put(request)

    def watch(self, scripts: Iterable[bytes], first: int | None) -> None:
        """Scripts are watched from a height on, or from the start of the client's search."""
        first = self._current if first is None else first
        for script in scripts:
            self.ever.add(script)
            before = self.watched.get(script)
            self.watched[script] = Watched(first if before is None else min(first, before.first))

    def unwatch(self, scripts: Iterable[bytes]) -> None:
        """Scripts are no longer watched."""
        for script in scripts:
            self.watched.pop(script, None)
            self.labels.pop(script, None)

    def rescan(self, first: int) -> tuple[int, Request]:
        """Search again from a height on."""
        return self._put(Rescan(SearchStart(first)))

    def _put(self, request: Request) -> tuple[int, Request]:
        self.asked += 1
        token = self.asked
        self.waiting[token] = self._all[token] = request
        return token, request

    def answered(self, token: int, value: object) -> None:
        """The client has carried out the request."""
        request = self.waiting.pop(token)
        is_gone = isinstance(value, ParameterError) and isinstance(request, _MAY_BE_GONE)
        if isinstance(value, Exception) and not is_gone:
            raise Violation("alive", f"{request} was refused: {value!r}")
        match request:
            case AddEntries(entries, start):
                self.watch((script for _, script, _ in entries), start.from_height)
            case RemoveEntries(removed):
                self.unwatch(script for _, script in removed)
            case RelabelEntries(((_, script, label),)) if not is_gone:
                self.labels[script] = label
            case Rescan(start):
                first = start.from_height or 0
                self._lowest, self._current = min(self._lowest, first), min(self._current, first)
                for script, before in self.watched.items():
                    self.watched[script] = Watched(min(before.first, first))
            case _:
                pass


def claimed(
    blocks: list[bytes], ranges: Mapping[bytes, Iterable[tuple[int, int]]], doubted: Container[int] = ()
) -> set[oracle.Place]:
    """The matches that a wallet must have, given the heights that it searched for each script.

    A block at a `doubted` height may hide its payments from the wallet, and so their spends at any height.
    """
    searched = {script: tuple(each) for script, each in ranges.items()}
    scripts, found = set(searched), set[oracle.Place]()
    coins: dict[bytes, bytes] = {}  # outpoint → script
    known = set[bytes]()  # the outpoints

    def is_searched(script: bytes, height: int) -> bool:
        return height not in doubted and any(first <= height <= last for first, last in searched[script])

    for height, raw in enumerate(blocks):
        block = oracle.read(raw)
        if block.pays.isdisjoint(scripts) and block.spends.isdisjoint(known):
            continue
        for tx in block.txs:
            for index, outpoint in enumerate(tx.spends):
                if outpoint in coins and is_searched(coins[outpoint], height):
                    found.add(oracle.Place("input", tx.txid, index, height, block.hash))
            for index, script in enumerate(tx.pays):
                if script in scripts and is_searched(script, height):
                    found.add(oracle.Place("output", tx.txid, index, height, block.hash))
                    outpoint = tx.txid + index.to_bytes(4, "little")
                    coins[outpoint] = script
                    known.add(outpoint)
    return found
