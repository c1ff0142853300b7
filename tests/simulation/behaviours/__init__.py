"""The library of behaviours of nodes in the simulated network."""

from __future__ import annotations

from simulation.behaviours import blocks, bloom, compact, faulty, floods
from simulation.behaviours.base import Behaviour
from simulation.behaviours.bloom import Liar
from simulation.behaviours.busy import BUSY
from simulation.behaviours.erratic import ERRATIC
from simulation.behaviours.faulty import Honest, Late
from simulation.behaviours.garbled import GARBLERS
from simulation.behaviours.relay import RELAYS, ROUNDS
from simulation.behaviours.schemes import SCHEMES

__all__ = [
    "BUSY",
    "ERRATIC",
    "FAULTY",
    "GARBLERS",
    "HONEST",
    "LATE",
    "LIARS",
    "RELAYS",
    "SCHEMES",
    "Behaviour",
    "named",
]

HONEST: type[Behaviour] = Honest
LATE: type[Behaviour] = Late


def _library(*modules: object) -> list[type[Behaviour]]:
    """Every behaviour of these modules that is no base class."""
    found = [
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Behaviour)
    ]
    return sorted({kind for kind in found if not _is_abstract(kind)}, key=lambda kind: kind.__name__)


def _is_abstract(kind: type[Behaviour]) -> bool:
    return kind in (Behaviour, Liar, Honest, compact.FalseFilters, compact.Tampering, floods.Flood)


FAULTY = [kind for kind in _library(faulty, blocks, compact) if kind.is_honest]
LIARS = [kind for kind in _library(faulty, bloom, compact, blocks, floods) if not kind.is_honest]


def named(name: str) -> type[Behaviour]:
    """The behaviour with a name."""
    return next(
        kind
        for kind in (HONEST, *FAULTY, *LIARS, *RELAYS, *GARBLERS, *SCHEMES, *ERRATIC, *BUSY, *ROUNDS)
        if kind.__name__ == name
    )
