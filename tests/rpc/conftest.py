"""Fixtures: a chain of regtest with payments, and a scripted node that has it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.corenode import CoreNode
from support.nodechains import paid_chain


@pytest.fixture
async def core() -> AsyncIterator[CoreNode]:
    """A node that answers as Bitcoin Core 30 with -rest=1, serving on 127.0.0.1."""
    async with paid_chain().node().serving() as node:
        yield node
