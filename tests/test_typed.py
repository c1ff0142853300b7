"""The `sh` blocks of every page run as a reader types them: in order, in one folder, with a node and its files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.project.pages import PAGES
from support.project.shellpages import ROOT, Stage, shell_blocks, shows

TYPED = [page for page in (ROOT / "README.md", *PAGES) if any(not block.reason for block in shell_blocks(page))]
ALL = [(page, block) for page in (ROOT / "README.md", *PAGES) for block in shell_blocks(page)]
# Words of commands that leave this machine, or that install something.
ELSEWHERE = re.compile(
    r"^(pip|git|dask|npm|curl) |--discover|--dask|--on-workers|--proxy|(s3|https|p2p|tcp|http)://(?!127\.0\.0\.1[:/])"
    r"|--(connect|peer) (?!127\.0\.0\.1\b)"
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("stage")) as opened:
        yield opened


@pytest.mark.long
@pytest.mark.posix
@pytest.mark.bitcoind
@pytest.mark.columns
@pytest.mark.descriptors
@pytest.mark.electrum
@pytest.mark.musig
@pytest.mark.plot
@pytest.mark.parametrize("page", TYPED, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_in_order(page: Path, stage: Stage, tmp_path: Path) -> None:
    for block, typed in stage.type_page(page, tmp_path):
        assert [(each.line, each.errors) for each in typed if each.code] == []
        assert shows(block.shown, "".join(each.output for each in typed)), "".join(each.output for each in typed)


def test_only_blocks_that_leave_the_machine_are_marked() -> None:
    for page, block in ALL:
        leave = [line for line in block.commands if ELSEWHERE.search(line)]
        assert bool(leave) == bool(block.reason), (page.name, block)
        assert block.reason in ("", "needs the internet", "needs a second machine")


def test_extras_that_pages_install_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        extra
        for _, block in ALL
        for line in block.commands
        for extras in re.findall(r"^pip install '\.\[([\w,]+)\]'", line)
        for extra in extras.split(",")
    }
    assert "cli" in named
    assert named <= {*project["optional-dependencies"]}
