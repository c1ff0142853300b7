"""Fixtures: a chain of regtest with payments, and a scripted node that has it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.blocks.nodechains import paid_chain
from support.peers.corenode import CoreNode


@pytest.fixture
async def core() -> AsyncIterator[CoreNode]:
    """A node that answers as Bitcoin Core 30 with -rest=1, serving on 127.0.0.1."""
    async with paid_chain().node().serving() as node:
        yield node
