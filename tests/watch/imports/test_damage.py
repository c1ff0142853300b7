"""Damaged watch lists, wallet files and URIs raise errors of this package only, soon, and without private keys."""

from __future__ import annotations

import pytest

from support.vectors import effort
from watch.imports import filefuzz


@pytest.mark.slow
@pytest.mark.descriptors
def test_damaged_files_raise_only_errors_of_this_package() -> None:
    count = effort(500, 5_000, 50_000)
    found = filefuzz.run(count)
    assert not found.faults, found.faults[:3]
    assert found.read + found.refused == count
    assert found.read > count / 40
    assert found.refused > count / 3
