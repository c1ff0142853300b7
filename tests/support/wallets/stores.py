"""Databases that are closed when their test ends. Python 3.13 warns if an open database is collected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spvfilter.network import REGTEST, Network
from spvfilter.store.store import Store

_open: list[Store] = []


def opened(path: Path | str, network: Network = REGTEST) -> Store:
    """A wallet's database that is open until the test ends."""
    store = Store.open(path, network)
    _open.append(store)
    return store


@pytest.fixture(autouse=True)
def stores_are_closed() -> Iterator[None]:
    """Fixture for a conftest.py. It applies to the tests of that folder."""
    yield
    while _open:
        _open.pop().close()
