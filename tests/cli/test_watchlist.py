"""`watchlist`: compile a watch list for scans, and verify such a file."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from spvfilter.network import REGTEST
from spvfilter.watch.watchlist import WatchList
from support.blocks.growingchain import GrowingChain
from support.commands.processes import command, environment

ADDRESS = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"
DESCRIPTOR = (
    "wpkh(tpubD6NzVbkrYhZ4WaWSyoBvQwbpLkojyoTZPRsgXELWz3Popb3qkjcJyJUGLnL4qHHoQvao8ESaAstxYSnhyswJ76uZPStJRJCTKvosUCJZL5B"
    "/0/*)"
)


@pytest.fixture
def chain(tmp_path: Path) -> GrowingChain:
    chain = GrowingChain(tmp_path / "blocks", 39)
    chain.mine(12)
    watch = chain.watch()
    watch.add_script_type("p2ms", "type")
    watch.save(tmp_path / "list.txt")
    return chain


def build(run: Any, tmp_path: Path) -> Path:
    path = tmp_path / "list.spvwl"
    ran = run("watchlist", "build", tmp_path / "list.txt", "-o", path, "--network", "regtest")
    entries = len(WatchList.load(tmp_path / "list.txt", REGTEST))
    size = path.stat().st_size
    said = f"spvfilter: {entries:,} entries compiled to {path}, {size:,} bytes\n"
    assert (ran.code, ran.out, ran.err) == (0, "", said)
    return path


def test_a_compiled_list_gives_the_same_rows(run: Any, tmp_path: Path, chain: GrowingChain) -> None:
    compiled = build(run, tmp_path)
    words = ("scan", chain.folder, "--network", "regtest", "--format", "csv")
    of_text, of_compiled = (run(*words, "--watch", each) for each in (tmp_path / "list.txt", compiled))
    assert of_text.code == of_compiled.code == 0
    assert of_compiled.out == of_text.out
    assert of_text.out.count("\n") > 20
    more = run(*words, "--watch", compiled, "--address", ADDRESS)
    assert (more.code, more.out) == (0, of_text.out)


@pytest.mark.few(1)
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_folder_takes_the_text_list_and_the_compiled_list(
    run: Any, tmp_path: Path, chain: GrowingChain, is_first: bool, processes: tuple[str, ...]
) -> None:
    """A later run scans only the new blocks, whichever form the list has."""
    compiled, out = build(run, tmp_path), tmp_path / "out"
    lists = [tmp_path / "list.txt", compiled][:: 1 if is_first else -1]
    words = ("scan", chain.folder, "--network", "regtest", "--quiet", *processes)
    assert run(*words, "--watch", lists[0], "--out", out).code == 0
    chain.begin_file()
    chain.mine(5)
    ran = run("scan", chain.folder, "--network", "regtest", "--watch", lists[1], "--out", out)
    assert ran.code == 0
    assert "5 new blocks" in ran.err
    assert run(*words, "--watch", lists[1], "--out", tmp_path / "whole").code == 0
    for name in ("matches.csv", "totals.csv"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_verify_reads_the_whole_file(run: Any, tmp_path: Path, chain: GrowingChain) -> None:
    path = build(run, tmp_path)
    ran = run("watchlist", "verify", path)
    entries = len(WatchList.load(path, REGTEST))
    assert (ran.code, ran.out, ran.err) == (0, "", f"spvfilter: {path}: {entries:,} entries, no damage\n")
    raw = bytearray(path.read_bytes())
    raw[-40] ^= 1
    path.write_bytes(raw)
    ran = run("watchlist", "verify", path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"spvfilter: {path}: digest at byte ")
    text = run("watchlist", "verify", tmp_path / "list.txt")
    assert (text.code, text.err.count("\n")) == (2, 1)
    assert "not a compiled watch list: build one from this file first" in text.err
    assert run("watchlist", "verify", tmp_path / "none").code == 2


def test_a_list_is_not_compiled_over_itself(run: Any, tmp_path: Path) -> None:
    text, link = tmp_path / "list.txt", tmp_path / "link"
    text.write_text(f"{ADDRESS}\n")
    link.symlink_to(text)
    for output in (text, link):
        ran = run("watchlist", "build", text, "-o", output, "--network", "regtest")
        assert (ran.code, "this would overwrite the watch list itself" in ran.err) == (2, True)
    assert text.read_text() == f"{ADDRESS}\n"
    assert "No such file" in run("watchlist", "build", tmp_path / "none", "-o", text).err


def test_a_list_without_entries_or_with_descriptors_is_not_compiled(run: Any, tmp_path: Path) -> None:
    text, path = tmp_path / "list.txt", tmp_path / "list.spvwl"
    text.write_text("# nothing\n")
    ran = run("watchlist", "build", text, "-o", path)
    assert (ran.code, ran.out) == (2, "")
    assert "list.txt has no entries: write one on each line" in ran.err
    pytest.importorskip("coincurve")
    text.write_text(f"{ADDRESS}\n{DESCRIPTOR}\n")
    ran = run("watchlist", "build", text, "-o", path, "--network", "regtest")
    assert (ran.code, ran.out) == (2, "")
    assert "the windows of 1 keychain move: take the descriptors out" in ran.err
    assert not path.exists()


@pytest.mark.few(1)
@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="needs /dev/stdin")
@pytest.mark.parametrize("action", ["build", "verify"])
def test_a_compiled_list_in_a_pipe_is_refused(tmp_path: Path, action: str) -> None:
    watch = WatchList(REGTEST)
    watch.add_address(ADDRESS)
    watch.compile(tmp_path / "list.spvwl")
    options = ("-o", str(tmp_path / "again"), "--network", "regtest") if action == "build" else ()
    ran = subprocess.run(
        command("watchlist", action, "/dev/stdin", *options),
        input=(tmp_path / "list.spvwl").read_bytes(),
        capture_output=True,
        env=environment(),
        check=False,
    )
    said = {
        "build": b"/dev/stdin: a compiled watch list is mapped into memory: give the path of a regular file\n",
        "verify": b"cannot be mapped into memory: give a regular file",
    }
    assert ran.returncode == 2
    assert said[action] in ran.stderr
    assert ran.stderr.count(b"\n") == 1


def test_a_compiled_list_of_standard_input_is_refused(tmp_path: Path) -> None:
    watch = WatchList(REGTEST)
    watch.add_address(ADDRESS)
    watch.compile(tmp_path / "list.spvwl")
    with (tmp_path / "list.spvwl").open("rb") as file:
        ran = subprocess.run(
            command("watchlist", "build", "-", "-o", str(tmp_path / "again"), "--network", "regtest"),
            stdin=file,
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
    assert ran.returncode == 2
    assert ran.stderr == (
        "spvfilter: standard input: a compiled watch list is mapped into memory: give the path of a regular file\n"
    )
