"""Fixtures of the scan tests: the number of threads, the size of batches, and clusters."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from spvfilter.kernel import BACKEND
from spvfilter.scan import order, scan
from support.commands.daskcluster import Cluster


@pytest.fixture
def many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use as many threads as jobs, with either kernel."""
    monkeypatch.setattr(scan, "BACKEND", "one that releases the GIL")


@pytest.fixture
def threads_of_this_kernel(many_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use as many threads as this kernel uses, even if `many_threads` is requested, too."""
    monkeypatch.setattr(scan, "BACKEND", BACKEND)


@pytest.fixture
def small_batches_and_many_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small batches, so that short chains have several, and as many threads as jobs, with either kernel."""
    monkeypatch.setattr(scan, "BACKEND", "one that releases the GIL")
    seed = request.node.callspec.params.get("seed", 0) if hasattr(request.node, "callspec") else 0
    monkeypatch.setattr(order, "BATCH_BLOCKS", (1, 2, 5, 256)[seed % 4])


@pytest.fixture
def nothing_of_distributed_is_left() -> Iterator[None]:
    yield
    gc.collect()  # collect now: in a later test, its warnings would be errors


@pytest.fixture(scope="session")
def two_workers() -> Iterator[Cluster]:
    made = Cluster(2)
    yield made
    made.end()


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A cluster of one worker."""
    made = Cluster(1)
    yield made
    made.end()
