"""Fixtures of these tests: a regtest node in its own thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spvfilter.testing import RegtestNode


@pytest.fixture
def regtest_node() -> Iterator[RegtestNode]:
    node = RegtestNode()
    yield node
    node.close()
