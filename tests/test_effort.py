"""Tests marked `long` run at the efforts `ci` and `full`, or when their file is named."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.installed import ROOT

FOLDER = "tests/wire"
FILE = f"{FOLDER}/test_session_hostile.py"
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
