"""Functional tests of Bitcoin Core whose connections lead to our node. It mirrors the Core of the test."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.bitcoind
_TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def mirror() -> Path:
    """The program that connects a functional test to our node."""
    found = Path(os.environ["BITCOIND"]).with_name("mirror.py")
    if not found.exists():
        pytest.skip("put mirror.py, setup and functional.tar.xz beside the program bitcoind")
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["p2p_fingerprint", "p2p_getdata", "p2p_invalid_locator", "p2p_nobloomfilter_messages", "p2p_ping"]
)
async def test_our_node_passes_a_functional_test_of_core(name: str, mirror: Path, tmp_path: Path) -> None:
    core = tmp_path / "core"
    unpacked = await asyncio.create_subprocess_exec(mirror.with_name("setup"), core)
    assert await unpacked.wait() == 0
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bitcoind.coremirror", name, "--continue", "--timeout-factor=10"),
        cwd=tmp_path,
        env=os.environ | {"CORE_TESTS": str(core), "MIRROR": str(mirror), "PYTHONPATH": str(_TESTS)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await child.communicate()
    told = output.decode()
    passed = re.search(rf"^== {name}: rc=0 passed (\d+) failed 0 ", told, re.MULTILINE)
    assert passed is not None, told
    assert int(passed[1]) > 0
