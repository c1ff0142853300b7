"""Databases that are closed at the end of the test that opened them: Python 3.13 warns of one that is collected while
it is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spvfilter.network import REGTEST, Network
from spvfilter.store.store import Store

_open: list[Store] = []


def opened(path: Path | str, network: Network = REGTEST) -> Store:
    """A wallet's database, until the test ends."""
    store = Store.open(path, network)
    _open.append(store)
    return store


@pytest.fixture(autouse=True)
def stores_are_closed() -> Iterator[None]:
    """For a conftest.py, whose folder it then holds for."""
    yield
    while _open:
        _open.pop().close()
