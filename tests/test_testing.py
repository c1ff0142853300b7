"""spvfilter.testing, used as a wallet's tests use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parent.parent / "docs/howto/testing.md").read_text(encoding="utf-8")
MORE = """
import asyncio
import pytest
from spvfilter import OutPoint
from spvfilter.errors import RefusedError
from spvfilter.testing import eventually

OURS = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"
THEIRS = "bcrt1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqdku202"
KEY = bytes(31) + b"\\x01"

def test_a_coin_is_spent_and_double_spent(regtest_node, light_client):
    client = light_client([OURS])
    paid = regtest_node.pay(OURS, 50_000)
    regtest_node.mine()
    eventually(lambda: client.balance().confirmed == 50_000)
    spent = regtest_node.spend(OutPoint(paid, 0), to=THEIRS, value=20_000, keys=[KEY])
    eventually(lambda: client.balance().pending_out == 50_000)
    with pytest.raises(RefusedError, match="insufficient fee"):
        regtest_node.spend(OutPoint(paid, 0), to=THEIRS, value=20_001, keys=[KEY])
    regtest_node.double_spend(spent, in_block=True, keys=[KEY])
    eventually(lambda: str(client.transaction(spent).status) == "conflicted")
    assert client.balance().total == 0

def test_nothing_is_left_in_the_mempool_of_what_is_evicted(regtest_node):
    paid = regtest_node.pay(OURS, 50_000)
    assert regtest_node.evict(paid) == [paid]
    assert regtest_node.mempool == []
    with pytest.raises(TimeoutError):
        eventually(lambda: regtest_node.mempool, seconds=0)

def test_a_string_is_no_list(light_client):
    with pytest.raises(TypeError, match="iterable"):
        light_client(OURS)
"""


@pytest.mark.long
@pytest.mark.descriptors
def test_a_wallet_s_tests_run_with_it(pytester: pytest.Pytester) -> None:
    (example,) = (
        part.split("```")[0] for part in PAGE.split("```python\n") if "spvfilter.testing" in part.split("```")[0]
    )
    pytester.makepyfile(test_page=example, test_more=MORE)
    pytester.makeconftest('pytest_plugins = ["spvfilter.testing"]')
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=4)


@pytest.mark.slow
def test_the_page_s_test_runs_alone_without_a_warning(pytester: pytest.Pytester) -> None:
    (example,) = (
        part.split("```")[0] for part in PAGE.split("```python\n") if "spvfilter.testing" in part.split("```")[0]
    )
    pytester.makepyfile(test_page=example)
    ran = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    ran.assert_outcomes(passed=1, warnings=0)


@pytest.mark.slow
def test_importing_the_package_imports_no_pytest() -> None:
    code = (
        "import sys, spvfilter; [getattr(spvfilter, name) for name in spvfilter.__all__]; sys.exit('pytest' in"
        " sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
