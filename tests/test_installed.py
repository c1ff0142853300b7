"""The tests run this checkout, or the installed spvfilter if they are told so, and their children run the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

import spvfilter
from support.project.installed import OPTION, ROOT, VARIABLE


def installed() -> Path:
    """The folder of the package that pip installed, the tree's where it has installed none."""
    paths = [entry for entry in sys.path if Path(entry).resolve() != ROOT]  # a tree that was built has metadata too
    found = next(iter(distributions(name="spvfilter", path=paths)), None)
    if found is None:
        return ROOT / "spvfilter"
    about = json.loads(found.read_text("direct_url.json") or "{}")
    return (
        ROOT / "spvfilter" if about.get("dir_info", {}).get("editable") else Path(str(found.locate_file("spvfilter")))
    )


def test_the_package_under_test_is_the_installed_one() -> None:
    assert Path(spvfilter.__file__).parent == installed()


def test_a_child_tests_it_too_wherever_it_starts() -> None:
    code = "import spvfilter; print(spvfilter.__file__)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert Path(ran.stdout.strip()).parent == installed()


@pytest.mark.long
def test_another_package_is_tested_only_on_request(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "spvfilter", tmp_path / "spvfilter", ignore=shutil.ignore_patterns("__pycache__", "csrc"))
    inherited = {name: value for name, value in os.environ.items() if name != VARIABLE}
    env = {**inherited, "PYTHONPATH": str(tmp_path), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    command = [sys.executable, "-m", "pytest", "tests/test_hashes.py", "-k", "sha256d"]
    refused, chosen = (
        subprocess.run([*command, *option], cwd=ROOT, env=env, capture_output=True, text=True)
        for option in ([], [OPTION])
    )
    assert refused.returncode == 4
    assert f"the tests would run {tmp_path / 'spvfilter'}, not this checkout" in refused.stderr
    assert chosen.returncode == 0, chosen.stdout
    assert f"testing spvfilter {spvfilter.__version__} in {tmp_path / 'spvfilter'} with the" in chosen.stdout
