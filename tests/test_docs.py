"""The documentation: its programs print the output shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.peers.redisserver import running_redis
from support.project.pages import PROGRAMS

MARKS = {
    "add_descriptor": pytest.mark.descriptors,
    "wpkh(": pytest.mark.descriptors,
    "read_wallet_file": pytest.mark.descriptors,
    "bdkpython": pytest.mark.kyoto,
    "ElectrumServer": pytest.mark.electrum,
    "pyarrow": pytest.mark.columns,
    "polars": pytest.mark.columns,
    'v2="require"': pytest.mark.v2,
}
REDIS_URL = "redis://localhost:6379/0"
RECIPES = ("'found/matches.parquet'", "tables/{table}")  # files of recipes, which tests/scan/test_recipes.py runs
AGENT = re.compile(r"(?<=/spvfilter:)[^/]+")  # the version in a user agent


def run(code: str, folder: Path) -> str:
    """The standard output of a program, which must end without a message."""
    script = folder / "example.py"
    script.write_text(code, encoding="utf-8")
    printed = set()
    for _ in range(2 if "store=" in code else 1):  # the database that a run leaves must not stop the next run
        done = subprocess.run(
            [sys.executable, "-W", "error", script], capture_output=True, text=True, cwd=folder, timeout=300
        )
        assert (done.returncode, done.stderr) == (0, "")
        printed.add(done.stdout)
    (only,) = printed
    return only


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "shown"),
    [
        pytest.param(code, shown, id=f"{page}:{number}", marks=[mark for word, mark in MARKS.items() if word in code])
        for page, number, code, shown in PROGRAMS
        if REDIS_URL not in code and not any(file in code for file in RECIPES)
    ],
)
def test_program_prints_the_output_shown(code: str, shown: str, tmp_path: Path) -> None:
    if "pytest_plugins" in code:
        (tmp_path / "test_example.py").write_text(code, encoding="utf-8")
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_example.py"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, shown) == (0, ""), done.stdout
    else:
        assert AGENT.sub("", run(code, tmp_path)) == AGENT.sub("", shown) != ""


@pytest.mark.redis
@pytest.mark.parametrize(("code", "shown"), [(code, shown) for _, _, code, shown in PROGRAMS if REDIS_URL in code])
def test_program_with_redis_prints_the_output_shown(code: str, shown: str, tmp_path: Path) -> None:
    with running_redis(tmp_path) as server:
        assert run(code.replace(REDIS_URL, server.url), tmp_path) == shown
