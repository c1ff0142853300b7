"""Tests marked `long` or `slow` run above the effort `quick`, or when their file is named."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from support.project.installed import ROOT
from support.vectors import spread

FOLDER = "tests/wire"
FILE = f"{FOLDER}/test_session_hostile.py"
FEW = "tests/simulation/test_encryption.py::test_wallet_is_found_over_encrypted_connections"
LONG = f"{FILE}::test_a_long_session_keeps_no_processed_message"


@pytest.mark.long
@pytest.mark.parametrize(
    ("effort", "arguments", "collected"),
    [
        ("quick", [FOLDER], False),
        ("quick", [FILE], True),
        ("quick", [LONG], True),
        ("quick", [FOLDER, "-m", "long"], True),
        ("ci", [FOLDER], True),
    ],
)
def test_a_long_test_waits_for_more_effort(effort: str, arguments: list[str], collected: bool) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, "SPVFILTER_EFFORT": effort}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert (LONG in ran.stdout) == collected
    assert "test_" in ran.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["tests/simulation"], 1),
        ([FEW], 2),
        (["tests/simulation", "-m", "slow"], 1),
        (["tests/simulation", "-m", "not long"], 2),
    ],
)
def test_slow_cases_wait_for_more_effort(arguments: list[str], count: int) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, "SPVFILTER_EFFORT": "quick"}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.count(f"{FEW}[") == count


@given(st.integers(1, 100), st.integers(1, 100), st.integers(0, 1 << 32))
def test_spread_cases_differ(few: int, count: int, begin: int) -> None:
    found = spread(few, count, begin)
    assert len(found) == min(few, count)
    assert found <= {*range(count)}
