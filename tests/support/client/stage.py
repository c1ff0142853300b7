"""A stage: the simulated world with chosen nodes, for one scenario against the engine in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from simulation.balance import check_views
from simulation.behaviours.base import Behaviour
from simulation.behaviours.faulty import Honest
from simulation.engine import make
from simulation.host import Process
from simulation.pipe import Quality
from simulation.record import Record
from simulation.world import Placed, World
from spvfilter.errors import PrivacyError
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.options import Options
from spvfilter.light.events import Event, Mode, PeerWarning, Synced
from spvfilter.node.responder import Responder
from spvfilter.wire.events import Service

Kind = Callable[[random.Random, World], Behaviour]


class Prompt(Honest):
    """Honest, over a good line."""

    def quality(self) -> Quality:
        return Quality(0.02, 0.0, 1e7, 0)


def answering(
    responder: type[Responder], *, is_honest: bool = False, services: Service | int = Honest.services
) -> type[Prompt]:
    """The behaviour of prompt nodes that answer in this way. Only an honest one must not be banned."""
    made = {"is_honest": is_honest, "is_full": is_honest, "is_prompt": is_honest}
    return type(responder.__name__, (Prompt,), {**made, "responder": responder, "services": services})


class Stage(World):
    """A world that keeps every reported event."""

    def __init__(self, options: Options, placed: list[Placed], path: Path, *, is_high: bool = False) -> None:
        self.told: list[Event] = []
        rng = random.Random(3)
        super().__init__(
            rng, make, options, placed, path, lambda timeline: Record(lambda: timeline.now), is_high=is_high
        )

    def _hear(self, process: Process, event: Event) -> None:
        self.told.append(event)
        super()._hear(process, event)

    @property
    def running(self) -> Process:
        """The process of the client, which must not have ended."""
        assert self.process is not None
        return self.process

    @property
    def engine(self) -> ClientEngine:
        """The engine of the running client."""
        assert isinstance(self.running.engine, ClientEngine)
        return self.running.engine

    @property
    def synced(self) -> list[Synced]:
        return [event for event in self.told if isinstance(event, Synced)]

    @property
    def warnings(self) -> list[PeerWarning]:
        """Warnings about peers. The warning that others can read a filter is about no fault of a peer."""
        warnings = [event for event in self.told if isinstance(event, PeerWarning)]
        return [event for event in warnings if not isinstance(event.error, PrivacyError)]

    @property
    def banned(self) -> set[str]:
        return {event.address for event in self.warnings if event.banned}

    def pass_time(self, seconds: float) -> None:
        self.timeline.run(self.timeline.now + seconds)

    def wait_synced(self, within: float) -> float:
        """Let time pass until the client reports Synced for the tip. Returns the elapsed time."""
        begun = self.timeline.now
        while not (self.synced and self.synced[-1].hash == self.truth.tip):
            assert self.timeline.now - begun < within, f"not synced within {within} s; {self.warnings}"
            self.pass_time(0.5)
        return self.timeline.now - begun

    def boot_without(self, number: int) -> None:
        """Start the client while a node is down. The node starts after Synced, and the client connects to it."""
        self.nodes[number].is_up = False
        self.boot()
        self.wait_synced(within=60)
        self.nodes[number].is_up = True
        self.pass_time(400)

    def has_found_all(self) -> bool:
        """Return True if the confirmed matches are those of the chain."""
        return self.running.books.confirmed() == self.truth.scan()


def at(kind: Kind, number: int, *ports: int, net: int | None = None) -> Placed:
    """A node on a host of its own network, or of the network given."""
    host = f"10.{number if net is None else net}.0.{number}"
    return Placed(kind, host, [f"{host}:{port}" for port in ports or (18444,)])


@contextmanager
def stage(folder: Path, mode: Mode, *nodes: Kind | Placed, is_high: bool = False, **options: object) -> Iterator[Stage]:
    """A world with these nodes, its client not started yet. With `is_high`, its chain is long."""
    placed = [each if isinstance(each, Placed) else at(each, number) for number, each in enumerate(nodes, 1)]
    chosen = Options(mode=mode, **options)  # type: ignore[arg-type]  # by name
    world = Stage(chosen, placed, folder / "wallet.db", is_high=is_high)
    try:
        yield world
        if world.process is not None and world.process.is_running and not world.process.disk.waiting:
            assert world.process.stored() == world.process.books.confirmed(), "the database differs from the events"
            check_views(world.process.disk.store)
    finally:
        if world.process is not None:
            world.process.disk.store.close()
