"""Errors about missing packages name the packages that pyproject.toml requires."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from spvfilter.errors import EXTRAS, remedy

ROOT = Path(__file__).parents[2]
REQUIRED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
SOURCES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "spvfilter").rglob("*.py")}


def test_an_extra_has_the_requirements_of_pyproject() -> None:
    assert {extra: tuple(each.partition(";")[0].strip() for each in REQUIRED[extra]) for extra in EXTRAS} == EXTRAS


def test_the_remedy_is_one_command() -> None:
    assert remedy("electrum") == 'run `python -m pip install "aiorpcX>=0.25"` (extra `electrum`)'
    assert remedy("rpc") == 'run `python -m pip install "httpx>=0.27" "sniffio>=1.3"` (extra `rpc`)'


def test_every_named_extra_is_one_of_pyproject() -> None:
    for path, text in SOURCES.items():
        named = set(re.findall(r"remedy\([\"'](\w+)[\"']\)|extra `(\w+)`", text))
        assert {each for pair in named for each in pair if each} <= REQUIRED.keys(), path


def test_no_message_asks_the_index_for_our_own_name() -> None:
    """The package may come from a clone, a wheel or a container, and the index may not have it."""
    assert not [path for path, text in SOURCES.items() if "spvfilter[" in text or "pip install 'spvfilter" in text]
