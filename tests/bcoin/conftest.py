"""Fixtures: a bcoin full node for one test, and bcoin's SPV client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.bcoin.process import Bcoin, running_bcoin
from support.bcoin.wallets import Wallets


@pytest.fixture
async def bcoin() -> AsyncIterator[Bcoin]:
    """A full node on regtest, its chain empty, listening on 127.0.0.1."""
    async with running_bcoin("full") as node:
        yield node


@pytest.fixture
def wallets(bcoin: Bcoin) -> Wallets:
    return Wallets(bcoin)
