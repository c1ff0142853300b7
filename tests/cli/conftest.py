"""Fixtures: the command line in this process, the demo's chain and wallet, a file of lines, and a filter of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from spvfilter.bloom.filter import BloomFilter
from spvfilter.cli import main
from spvfilter.cli.demo.chain import NETWORK, DemoChain, wallet_addresses
from support.commands.processes import LINES


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ran]]:
    """Run the command line in this process, with empty standard input and output streams that are not terminals."""

    def call(*argv: object) -> Ran:
        code = main([str(item) for item in argv])
        return Ran(code, *capsys.readouterr())

    with Path(os.devnull).open(encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield call


@pytest.fixture(scope="session")
def chain() -> Sequence[bytes]:
    return DemoChain().blocks


@pytest.fixture
def block_file(chain: Sequence[bytes], tmp_path: Path) -> Path:
    """The demo's chain in a blk*.dat file."""
    path = tmp_path / "blk00000.dat"
    path.write_bytes(b"".join(NETWORK.magic + len(block).to_bytes(4, "little") + block for block in chain))
    return path


@pytest.fixture
def watch_file(tmp_path: Path) -> Path:
    """The demo's wallet."""
    path = tmp_path / "wallet.txt"
    path.write_text("".join(f"{address},{kind}\n" for kind, address in wallet_addresses().items()), encoding="utf-8")
    return path


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A file of the lines alpha, beta and gamma."""
    path = tmp_path / "lines.txt"
    path.write_bytes(LINES)
    return path


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A filter of alpha, beta and gamma."""
    path = tmp_path / "made.bloom"
    built = BloomFilter(1_000, 1e-6)
    built.update(LINES.split())
    built.save(path)
    return path
