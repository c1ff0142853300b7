"""Fixtures of the scan tests: the number of threads and the size of batches."""

from __future__ import annotations

import pytest

from spvfilter.kernel import BACKEND
from spvfilter.scan import order, scan


@pytest.fixture
def many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads as jobs, with either kernel."""
    monkeypatch.setattr(scan, "BACKEND", "one that releases the GIL")


@pytest.fixture
def threads_of_this_kernel(many_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads as this kernel uses, even if `many_threads` is requested too."""
    monkeypatch.setattr(scan, "BACKEND", BACKEND)


@pytest.fixture
def small_batches_and_many_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches, so that short chains have several; and as many threads as jobs, with either kernel."""
    monkeypatch.setattr(scan, "BACKEND", "one that releases the GIL")
    seed = request.node.callspec.params.get("seed", 0) if hasattr(request.node, "callspec") else 0
    monkeypatch.setattr(order, "BATCH_BLOCKS", (1, 2, 5, 256)[seed % 4])
