"""Rules that all commands with rows share: formats, pipes, standard error, and the network of a database."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli.demo.chain import wallet_addresses
from spvfilter.cli.term.page import Page, complain
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch
from spvfilter.store.store import Store
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import p2wpkh
from support.commands.processes import on_terminal

ADDRESS = wallet_addresses()["P2PKH"]
REGTEST_ONLY = ("--network", "regtest")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A wallet's database on regtest."""
    path = tmp_path / "wallet.db"
    with Store.open(path, REGTEST) as store:
        watch = WatchList(REGTEST)
        watch.add_script(p2wpkh(b"\x01" * 20))
        store.attach(watch)
        store.commit(Batch(headers=REGTEST.genesis))
    return path


@pytest.fixture
def commands(block_file: Path, made: Path, db: Path, chain: Sequence[bytes]) -> dict[str, list[object]]:
    """A command line for each command that prints its own rows."""
    return {
        "scan": [block_file, "--address", ADDRESS, *REGTEST_ONLY],
        "inspect": [chain[0].hex(), *REGTEST_ONLY],
        "descriptor": [f"raw(0014{'ab' * 20})", *REGTEST_ONLY],
        "privacy": [ADDRESS, "--probes", 0, *REGTEST_ONLY],
        "wallet balance": ["--db", db],
        "cfilter build": [block_file, *REGTEST_ONLY],
        "bloom info": [made],
        "bloom size": ["--capacity", 10, "--fp-rate", 0.1],
    }


NAMES = ["scan", "inspect", "privacy", "wallet balance", "cfilter build", "bloom info", "bloom size"]
WITH_EXTRA = [*NAMES, pytest.param("descriptor", marks=pytest.mark.descriptors)]


@pytest.mark.parametrize("name", WITH_EXTRA)
def test_rows_in_a_pipe_are_json_lines(run: Any, commands: dict[str, list[object]], name: str) -> None:
    ran = run(*name.split(), *commands[name])
    assert ran.code == 0
    assert all(isinstance(json.loads(line), dict) for line in ran.out.splitlines())
    assert ran.out == run(*name.split(), *commands[name], "--format", "jsonl").out != ""
    assert all(line.startswith("spvfilter: ") for line in ran.err.splitlines())


@pytest.mark.parametrize("name", WITH_EXTRA)
def test_rows_on_a_terminal_are_a_table(commands: dict[str, list[object]], name: str) -> None:
    code, screen = on_terminal(*name.split(), *commands[name])
    assert code == 0
    assert '{"' not in screen


@pytest.mark.parametrize("name", WITH_EXTRA)
def test_the_old_name_of_jsonl_is_corrected(run: Any, commands: dict[str, list[object]], name: str) -> None:
    ran = run(*name.split(), *commands[name], "--format", "json")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("spvfilter: argument --format: invalid choice: did you mean jsonl? (see ")


def test_rows_in_a_file_are_json_lines(run: Any, commands: dict[str, list[object]], tmp_path: Path) -> None:
    ran = run("scan", *commands["scan"], "--output", tmp_path / "rows")
    assert (ran.code, ran.out) == (0, "")
    assert [json.loads(line)["kind"] for line in (tmp_path / "rows").read_text().splitlines()] == ["output", "input"]


def test_quiet_leaves_only_rows(run: Any, commands: dict[str, list[object]]) -> None:
    ran = run("scan", *commands["scan"], "--quiet", "--format", "table")
    assert (ran.code, ran.err, "Totals" in ran.out) == (0, "", False)
    assert "do not print the totals and the summary" in run("scan", "--help").out.replace("\n" + " " * 24, " ")


@pytest.mark.parametrize("argv", [["privacy", "--probes", 0], ["cfilter", "export"]])
def test_a_network_that_contradicts_the_database_is_refused(run: Any, db: Path, argv: list[object]) -> None:
    ran = run(*argv, "--db", db, "--network", "signet")
    said = f"spvfilter: --network signet contradicts {db}, which is a regtest database: omit --network\n"
    assert (ran.code, ran.out, ran.err) == (2, "", said)


def test_filters_are_imported_into_the_network_of_the_database(
    run: Any, commands: dict[str, list[object]], db: Path, tmp_path: Path
) -> None:
    (tmp_path / "filters.jsonl").write_text(run("cfilter", "build", *commands["cfilter build"]).out)
    ran = run("cfilter", "import", tmp_path / "filters.jsonl", "--db", db)
    assert "signet" not in ran.err
    assert "these filters are not for" not in ran.err


@pytest.mark.parametrize("name", ["watch", "broadcast"])
def test_help_of_modes_names_the_facts_that_nodes_learn(run: Any, name: str) -> None:
    said = " ".join(run(name, "--help").out.split())
    assert "With compact, nodes learn only which blocks are fetched." in said
    assert "nothing" not in said.partition("--mode")[2].partition("--network")[0]


def test_each_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    for name in ("stdout", "stderr"):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "write", written.append)
        monkeypatch.setattr(sys, name, stream)
    Page(sys.stdout).line("row")
    complain("message")
    assert written == ["row\n", "spvfilter: message\n"]
