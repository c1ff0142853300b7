"""Comparison of reported matches with the matches of the chain."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from simulation.oracle import Place
from simulation.violation import Violation

_SHOWN = 3  # matches quoted in a message


def check_same(
    told: AbstractSet[Place], there: AbstractSet[Place], source: str, allowed: AbstractSet[Place] | None = None
) -> None:
    """True: the reported matches are those of the chain. Matches in `allowed` may be reported too."""
    if missing := there - told:
        raise Violation("true", f"{source} lack {len(missing)} of {len(there)} matches: {_some(missing)}")
    if invented := told - (there if allowed is None else allowed):
        raise Violation("true", f"{source} have {len(invented)} matches that are not in the chain: {_some(invented)}")


def _some(places: AbstractSet[Place]) -> str:
    shown = sorted(places, key=lambda place: (place.height, place.txid, place.kind, place.number))[:_SHOWN]
    return ", ".join(f"{place.kind} {place.txid[::-1].hex()[:12]}:{place.number} at {place.height}" for place in shown)
