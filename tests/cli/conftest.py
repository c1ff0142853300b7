"""Fixtures: the command line in this process, the demo's chain and wallet, a file of lines, and a filter of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spvfilter.bloom.filter import BloomFilter
from spvfilter.cli import main
from spvfilter.cli.demo.chain import NETWORK, DemoChain, wallet_addresses
from support.commands.processes import LINES


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "transcript_of" in getattr(item, "fixturenames", ()):
            item.add_marker("syrupy")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ran]]:
    """Run the command line in this process, with empty standard input and output streams that are not terminals."""

    def call(*argv: object) -> Ran:
        code = main([str(item) for item in argv])
        return Ran(code, *capsys.readouterr())

    with Path(os.devnull).open(encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield call


@pytest.fixture
def transcript_of(
    run: Callable[..., Ran], snapshot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int, str], list[Ran]]:
    """Run command lines in `tmp_path`, and compare all that they print with the transcript of the test.

    The exit code of each is an argument, which no update of the transcript changes.
    """
    from support.commands.transcripts import Transcripts, transcript  # needs syrupy

    expected = snapshot.use_extension(Transcripts)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def compare(code: int, lines: str) -> list[Ran]:
        commands = [line.strip() for line in lines.splitlines() if line.strip()]
        results = [run(*shlex.split(line)) for line in commands]
        told = [transcript(line, ran.out, ran.err, tmp_path) for line, ran in zip(commands, results, strict=True)]
        assert expected == "\n".join(told)
        assert [ran.code for ran in results] == [code] * len(commands)
        return results

    return compare


@pytest.fixture
def refused(transcript_of: Callable[[int, str], list[Ran]]) -> Callable[[str], list[Ran]]:
    """Run command lines that each fail with exit code 2 and one line, which is that of the transcript."""

    def compare(lines: str) -> list[Ran]:
        results = transcript_of(2, lines)
        for ran in results:
            assert (ran.out, ran.err.count("\n")) == ("", 1)
            assert ran.err.startswith("spvfilter: ")
        return results

    return compare


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
