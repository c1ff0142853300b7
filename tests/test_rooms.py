"""docs/rooms.py: links and defaults in the reference."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from spvfilter import MAINNET, Network
from spvfilter.light import Mode


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "docs"))
    module = import_module("rooms")
    monkeypatch.delitem(sys.modules, "rooms")
    return module


def test_defaults_print_as_names(rooms: ModuleType) -> None:
    private = tuple(range(100))

    def called(
        network: Network = MAINNET,
        mode: Mode = Mode.AUTO,
        clock: Callable[[], float] = time.time,
        size: int = 5,
        values: tuple[int, ...] = private,
    ) -> None: ...

    rooms.name_defaults(called)
    shown = [repr(each.default) for each in inspect.signature(called).parameters.values()]
    assert shown == ["MAINNET", "<Mode.AUTO: 'auto'>", "time.time", "5", "..."]


def test_links_lead_to_unique_names(rooms: ModuleType) -> None:
    links = rooms.links()
    assert links["LightClient"] == "spvfilter.light.LightClient"
    assert links["LightClient.events()"] == "spvfilter.light.LightClient.events"
    assert links["murmur3()"] == "spvfilter.hashes.murmur3"
    assert "murmur3" not in links  # it may be the name of a parameter
