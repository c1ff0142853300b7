"""Pages whose `sh` blocks run as a reader types them: in order, in one folder, with a small chain for ~/.bitcoin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spvfilter import REGTEST, SIGNET, Node, SyncLightClient, TxOut, WatchList, address_to_script
from spvfilter.network import Network
from spvfilter.testing import RegtestNode
from support.chains import write_records
from support.undo import ledger_chain, write_undo

HOWTO = Path(__file__).parents[1] / "docs/howto"
ADDRESS = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"
DESCRIPTOR = "wpkh(0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798)"
ELSEWHERE = re.compile(r"^pip |--dask|--follow|^tail -f |--connect|cfilter export")
"""Lines that need a clone, a node, another machine or Ctrl-C. They are only parsed, by test_docs.py."""


def typed(page: str) -> Iterator[str]:
    """The commands of a page that run here."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (HOWTO / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            if not ELSEWHERE.search(line):
                yield line.replace("--to-height 800000", "--to-height 100")  # a block of the small chain


def install(folder: Path, *options: str) -> dict[str, str]:
    """Write a program `spvfilter` that appends options, and return the environment in which a shell finds it."""
    program = folder / "bin/spvfilter"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spvfilter "$@" {" ".join(options)}\n', encoding="utf-8")
    program.chmod(0o755)
    path = os.pathsep.join((str(program.parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "HOME": str(folder), "PYTHONPATH": str(HOWTO.parents[1])}


def type_in(page: str, folder: Path, environment: dict[str, str]) -> list[str]:
    """Type the commands of a page into a shell in `folder`, and return the failed ones with their messages."""
    failed = []
    for line in typed(page):
        done = subprocess.run(["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            failed.append(f"{line}: {done.stderr}")
    return failed


def ledger_files(folder: Path, network: Network) -> None:
    """Write a chain and its undo records as a node keeps them."""
    folder.mkdir(parents=True)
    _, blocks, records = ledger_chain(3)
    write_records(folder / "blk00000.dat", blocks, network.magic)
    write_undo(folder / "rev00000.dat", records, network.magic)


@pytest.mark.long
@pytest.mark.posix
@pytest.mark.columns
def test_the_page_of_exports_runs_as_typed(tmp_path: Path) -> None:
    regtest = Node().regtest
    regtest.mine(101)
    regtest.pay(TxOut(50_000, address_to_script(ADDRESS, REGTEST)))
    regtest.mine()
    blocks = tmp_path / ".bitcoin/blocks"
    blocks.mkdir(parents=True)
    write_records(blocks / "blk00000.dat", [block.raw for block in regtest.chain.active])
    (tmp_path / "list.txt").write_text(f"{ADDRESS}\n", encoding="utf-8")
    environment = install(tmp_path, "--network", "regtest")
    assert type_in("export.md", tmp_path, environment) == []
    assert {path.name for path in tmp_path.iterdir()} >= {"chain", "few", "tables", "found", "coins", "state"}


@pytest.mark.long
@pytest.mark.posix
@pytest.mark.descriptors
def test_the_page_of_filters_runs_as_typed(tmp_path: Path) -> None:
    ledger_files(tmp_path / ".bitcoin/signet/blocks", SIGNET)
    for name in ("wallet.txt", "signet.txt", "domains.txt", "candidates.txt", "urls.txt"):
        (tmp_path / name).write_text(f"{DESCRIPTOR}\n", encoding="utf-8")
    with closing(RegtestNode()) as node:
        watch = WatchList.from_addresses([ADDRESS], REGTEST)
        with SyncLightClient(watch, peers=[node.address], mode="bip37", store=str(tmp_path / "wallet.db")) as client:
            client.wait_synced()
    environment = install(tmp_path)
    assert type_in("cli-filters.md", tmp_path, environment) == []
    assert (tmp_path / "filters.jsonl").read_text(encoding="utf-8").count("\n") == 30
