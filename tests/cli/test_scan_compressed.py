"""`scan` of compressed files, with compressed watch lists: the same rows as of plain files."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli.demo.chain import NETWORK
from spvfilter.watch.watchlist import WatchList
from support.blocks.chains import record
from support.commands.processes import command, environment
from support.kernels.zstd import reads_zstd, zstd_frame

PACKERS = [pytest.param(gzip.compress, ".gz", id="gzip"), pytest.param(zstd_frame, ".zst", id="zstd", marks=reads_zstd)]


@pytest.mark.parametrize(("pack", "suffix"), PACKERS)
def test_compressed_blocks_and_lists_give_the_same_rows(
    run: Any,
    chain: Sequence[bytes],
    watch_file: Path,
    block_file: Path,
    tmp_path: Path,
    pack: Callable[[bytes], bytes],
    suffix: str,
) -> None:
    half = len(chain) // 2
    (tmp_path / f"a.dat{suffix}").write_bytes(pack(b"".join(map(record, chain[:half]))))
    (tmp_path / f"b.hex{suffix}").write_bytes(pack(b"".join(raw.hex().encode() + b"\n" for raw in chain[half:])))
    (tmp_path / f"list{suffix}").write_bytes(pack(watch_file.read_bytes()))
    options = ["--network", "regtest", "--format", "csv", "--quiet"]
    expected = run("scan", block_file, "--watch", watch_file, *options)
    names = (tmp_path / f"a.dat{suffix}", tmp_path / f"b.hex{suffix}")
    ran = run("scan", *names, "--watch", tmp_path / f"list{suffix}", *options)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == expected.out
    assert len(ran.out.splitlines()) > 5
    assert WatchList.load(tmp_path / f"list{suffix}", NETWORK) == WatchList.load(watch_file, NETWORK)


def test_problems_name_the_compressed_file(run: Any, chain: Sequence[bytes], watch_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "blocks.gz"
    lines = [raw.hex() for raw in chain] + ["not a block"] * 30
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    ran = run("scan", path, "--watch", watch_file, "--network", "regtest", "--format", "csv", "--quiet")
    number = len(chain) + 1
    assert ran.code == 1
    assert ran.err == (
        f"spvfilter: {path}: line {number}: not hex: character 1 is not a hex digit"
        " (and 29 more problems of this kind in this file)\n"
    )
    path.write_bytes(path.read_bytes()[:-9])
    ran = run("scan", path, "--watch", watch_file, "--network", "regtest", "--format", "csv", "--quiet")
    assert ran.code == 2
    assert f"spvfilter: {path}: the compressed stream is damaged or cut off" in ran.err


def test_compressed_files_are_refused_where_blocks_are_read_again(refused: Any, watch_file: Path) -> None:
    refused(
        f"""
        scan blocks.gz --watch {watch_file} --out found
        scan blocks.gz blk00000.dat --watch {watch_file}
        scan blocks.gz --watch {watch_file} --from-height 3
        scan blocks.gz --watch {watch_file} --plot x.png
        scan blocks.gz --watch {watch_file} --undo require
        scan blocks.gz --watch {watch_file} --quiet
    """.replace("--watch", "--network regtest --watch")
    )


@pytest.mark.slow
@pytest.mark.posix
def test_pipe_is_scanned_as_standard_input_is(watch_file: Path, block_file: Path) -> None:
    reading, writing = os.pipe()
    options = ["--network", "regtest", "--format", "csv", "--quiet", "--watch", str(watch_file)]
    with subprocess.Popen(["cat", str(block_file)], stdout=writing):
        os.close(writing)
        words = command("scan", f"/dev/fd/{reading}", *options)
        ran = subprocess.run(words, pass_fds=[reading], capture_output=True, env=environment(), timeout=120)
        os.close(reading)
    expected = subprocess.run(command("scan", str(block_file), *options), capture_output=True, env=environment())
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, b"", expected.stdout)
    assert len(ran.stdout.splitlines()) > 5


@pytest.mark.few(1)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_output_is_utf_8_in_every_locale(block_file: Path, watch_file: Path, encoding: str, form: str) -> None:
    lines = [f"{line.partition(',')[0]},Über 日本" for line in watch_file.read_text().splitlines() if line[0] != "#"]
    watch_file.write_text("\n".join(lines), encoding="utf-8")
    words = command("scan", str(block_file), "--network", "regtest", "--watch", str(watch_file), "--format", form)
    ran = subprocess.run(words, capture_output=True, env={**environment(), "PYTHONIOENCODING": encoding}, timeout=120)
    text = ran.stdout.decode("utf-8")
    labels = [row["label"] for row in csv.DictReader(text.splitlines())] if form == "csv" else []
    labels += [json.loads(line)["label"] for line in text.splitlines()] if form == "jsonl" else []
    assert "Über 日本" in labels
