"""The tests run the spvfilter that is installed, and not the tree beside them, in children too."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import spvfilter
from support.installed import ROOT


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
