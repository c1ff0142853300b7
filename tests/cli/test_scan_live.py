"""`scan` live: blocks on standard input, progress and labels on a terminal, interrupts, a broken pipe."""

from __future__ import annotations

import gzip
import json
import re
import select
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli.demo.chain import wallet_addresses
from spvfilter.errors import remedy
from spvfilter.hashes import sha256d
from spvfilter.network import MAINNET, REGTEST
from support.blocks.chains import record
from support.commands.processes import WITH_SIGINT, WITHOUT_RICH, command, environment, on_terminal, process
from support.kernels.zstd import READS_ZSTD

P2PKH = wallet_addresses()["P2PKH"]
# the message about a truncated stream
NO_ZSTD = f"compressed with zstd, which needs zstandard; {remedy('zstd')}"
CUT_ZSTD = "the compressed stream is damaged" if READS_ZSTD else NO_ZSTD


def hex_lines(blocks: Sequence[bytes]) -> bytes:
    return b"".join(block.hex().encode() + b"\n" for block in blocks)


def fork(chain: Sequence[bytes]) -> bytes:
    """A second block on block 1 with the transactions of block 2; the branch has less work than the chain."""
    other = bytearray(chain[1])
    other[68] ^= 1  # time
    return bytes(other)


def test_blocks_come_as_lines_of_hex_on_standard_input(chain: Sequence[bytes]) -> None:
    stdin = b"\n" + hex_lines(chain).replace(b"\n", b"\r\n")
    ran = process("scan", "-", "--address", P2PKH, "--network", "regtest", "--format", "jsonl", stdin=stdin)
    assert ran.returncode == 0
    matches = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(match["kind"], match["height"], match["value"]) for match in matches] == [
        ("output", 2, 50_000_000),
        ("input", 4, 50_000_000),
    ]


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        (b"", "found no blocks in standard input"),
        (b"\xff\xfe12", "neither lines of hex nor a blk*.dat"),
        (MAINNET.magic + bytes(200), "these are mainnet blocks, but the network is regtest"),
        (REGTEST.magic + b"\xff\xff\xff\xff", "no block record of regtest at byte 0"),
        (b"\x1f\x8b\x08garbage", "the compressed stream is damaged"),
        (b"\x28\xb5\x2f\xfd", CUT_ZSTD),
        (b"00\n", "header at byte 0: truncated"),
    ],
)
def test_bad_standard_input_is_one_line_and_exit_code_2(stdin: bytes, said: str) -> None:
    ran = process("scan", "-", "--address", P2PKH, "--network", "regtest", stdin=stdin)
    assert (ran.returncode, ran.stdout) == (2, b"")
    where = "standard input: " if stdin else ""
    assert ran.stderr.decode().startswith(f"spvfilter: {where}{said}")
    assert ran.stderr.count(b"\n") == 1


def test_line_without_hex_is_named_and_skipped(chain: Sequence[bytes]) -> None:
    lines = hex_lines(chain).splitlines(keepends=True)
    ran = process(
        "scan",
        "-",
        "--address",
        P2PKH,
        "--network",
        "regtest",
        "--format",
        "table",
        stdin=b"".join([*lines[:2], b"\nzz\n", *lines[2:]]),
    )
    assert ran.returncode == 1
    assert b"standard input: line 4: not hex: character 1 is not a hex digit\n" in ran.stderr
    assert re.search(rf"{P2PKH} +0\.50000000 +0\.50000000 +2\n", ran.stdout.decode())
    ran = process("scan", "-", "--address", P2PKH, "--network", "regtest", stdin=b"zz\nzebra yellow\n")
    assert b"zz" not in ran.stderr
    assert b"zebra" not in ran.stderr
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.endswith(b"nothing could be read\n")


@pytest.mark.long
@pytest.mark.parametrize("form", ["records", "gzip", "twice", "padded", "hex gzip"])
def test_blk_files_and_compressed_input_are_read(chain: Sequence[bytes], form: str) -> None:
    plain = b"".join(map(record, chain))
    stdin = {
        "records": plain,
        "gzip": gzip.compress(plain),
        "twice": gzip.compress(gzip.compress(plain)),
        "padded": record(chain[0]) + bytes(70_000) + b"".join(map(record, chain[1:])) + bytes(5_000),
        "hex gzip": gzip.compress(hex_lines(chain)),
    }[form]
    expected = process(
        "scan", "-", "--address", P2PKH, "--network", "regtest", "--format", "csv", stdin=hex_lines(chain)
    ).stdout
    ran = process("scan", "-", "--address", P2PKH, "--network", "regtest", "--format", "csv", stdin=stdin)
    assert (ran.returncode, ran.stdout) == (0, expected)
    assert len(expected.splitlines()) == 3
    end = stdin if form == "gzip" else plain
    cut = process("scan", "-", "--address", P2PKH, "--network", "regtest", "--format", "csv", stdin=end[:-9])
    assert cut.returncode == (2 if form == "gzip" else 1)
    assert b"cut off" in cut.stderr


def test_matches_of_stale_blocks_leave_the_totals(chain: Sequence[bytes]) -> None:
    stale = fork(chain)
    stdin = hex_lines([chain[0], stale, *chain[1:]])
    ran = process("scan", "-", "--address", P2PKH, "--network", "regtest", "--format", "table", stdin=stdin)
    said = ran.stderr.decode()
    assert ran.returncode == 0
    assert re.search(rf"{P2PKH} +0\.50000000 +0\.50000000 +2\n", ran.stdout.decode())
    stale_said = "1 stale block, not on the branch with the most work, not counted; matches in them that had already"
    assert f"{stale_said} been printed: 1" in said
    assert f"  {sha256d(stale[:80])[::-1].hex()}\n" in said


@pytest.mark.slow
def test_interrupt_ends_the_wait_for_input_at_once(chain: Sequence[bytes]) -> None:
    argv = command("scan", "-", "--address", P2PKH, "--network", "regtest", "--format", "jsonl", code=WITH_SIGINT)
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write(hex_lines(chain[:2]))
        child.stdin.flush()
        assert select.select([child.stdout], [], [], 60)[0]
        assert json.loads(child.stdout.readline())["height"] == 2  # matches come while the stream is open
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 130
        assert child.stderr.read() == b"spvfilter: interrupted\n"


def test_a_pipe_that_breaks_ends_a_scan_quietly(chain: Sequence[bytes]) -> None:
    argv = command("scan", "-", "--address", P2PKH, "--network", "regtest", "--format", "jsonl")
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        child.stdin.write(hex_lines(chain))
        child.stdin.flush()
        assert child.wait(timeout=60) == 141  # standard input is still open
        assert child.stderr.read() == b""


@pytest.mark.few(1)
@pytest.mark.parametrize("code", ["", WITHOUT_RICH], ids=["rich", "plain"])
def test_a_terminal_shows_progress_and_rows_of_80_columns(code: str, block_file: Path, watch_file: Path) -> None:
    ended, screen = on_terminal("scan", block_file, "--watch", watch_file, "--network", "regtest", code=code)
    assert ended == 0
    assert "100%" in screen
    lines = [line.rpartition("\r")[2] for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).split("\n")]
    assert any(line.startswith("   height  kind ") for line in lines)  # the progress line was cleared
    rows = [line for line in lines if "received  " in line and "+" in line]
    assert len(rows) == 8
    assert max(map(len, rows)) <= 80


def test_no_progress_is_shown_where_standard_error_is_no_terminal(block_file: Path) -> None:
    ran = process("scan", block_file, "--address", P2PKH, "--network", "regtest", "--format", "jsonl")
    assert b"\r" not in ran.stderr
    assert b"\x1b" not in ran.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize("code", ["", WITHOUT_RICH], ids=["rich", "plain"])
@pytest.mark.parametrize("chosen", ["table", "jsonl", "csv"])
def test_labels_are_neither_markup_nor_control(code: str, chosen: str, block_file: Path, tmp_path: Path) -> None:
    watch = tmp_path / "w"
    watch.write_text(f"{P2PKH},[red]x[/]\u202e:smile:\n", encoding="utf-8")
    ended, screen = on_terminal(
        "scan", block_file, "--watch", watch, "--network", "regtest", "--format", chosen, code=code
    )
    assert ended == 0
    assert screen.count("[red]x[/]") == 3  # two matches and their total
    assert screen.count(":smile:") >= 2  # rich may fold the total's
    assert "\u202e" not in screen


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [("filterload", "--tweak", "7"), ("scan", "BLOCKS", "--format", "jsonl"), ("cfilter", "match", "FILTERS")],
)
def test_a_watch_list_may_come_on_standard_input(
    command: tuple[str, ...], block_file: Path, watch_file: Path, tmp_path: Path
) -> None:
    filters = tmp_path / "filters"
    filters.write_bytes(process("cfilter", "build", block_file, "--network", "regtest").stdout)
    argv = [{"BLOCKS": block_file, "FILTERS": filters}.get(word, word) for word in command]
    told = [
        process(*argv, "--watch", name, "--network", "regtest", stdin=stdin)
        for name, stdin in ((watch_file, b""), ("-", watch_file.read_bytes()))
    ]
    assert [ran.returncode for ran in told] == [0, 0]
    assert told[0].stdout
    assert told[0].stdout == told[1].stdout
    bad = process(*argv, "--watch", "-", "--network", "regtest", stdin=b"# none\nno address\n")
    assert (bad.returncode, bad.stdout) == (2, b"")
    assert bad.stderr.startswith(b"spvfilter: standard input: line 2: ")


@pytest.mark.parametrize("command", [("scan", "-"), ("cfilter", "match", "-"), ("cfilter", "match", "x", "-")])
def test_standard_input_cannot_be_watch_list_and_blocks(run: Any, command: tuple[str, ...]) -> None:
    ran = run(*command, "--watch", "-")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "spvfilter: '-' is standard input: --watch and the input to search cannot both be '-'\n"
