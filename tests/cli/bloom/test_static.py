"""`bloom create --static`, and the other actions on the file that it makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom import BloomFilter, SipHash, StaticFilter


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"host{number}.example\n" for number in range(1_000)) + "host7.example\n")
    return path


@pytest.fixture
def made(run: Any, lines: Path, tmp_path: Path) -> Path:
    path = tmp_path / "made.static"
    assert run("bloom", "create", path, lines, "--static").code == 0
    return path


def test_create_makes_a_static_filter_of_the_lines(run: Any, lines: Path, tmp_path: Path) -> None:
    path = tmp_path / "f"
    ran = run("bloom", "create", path, lines, "--static")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "spvfilter: 1,001 lines, 1,000 of them distinct: 1,408 bytes\n"
    found = StaticFilter.open(path)
    assert found == StaticFilter(b"host%d.example" % number for number in range(1_000))


@pytest.mark.parametrize(("rate", "bits"), [(0.01, 8), (0.00390625, 8), (0.0039, 16), (1e-5, 32)])
def test_the_rate_chooses_the_fingerprints(run: Any, lines: Path, tmp_path: Path, rate: float, bits: int) -> None:
    path = tmp_path / "f"
    assert run("bloom", "create", path, lines, "--static", "--fp-rate", rate, "--key", "ab" * 16).code == 0
    found = StaticFilter.open(path)
    assert (found.fingerprint_bits, found.hashing) == (bits, SipHash(b"\xab" * 16))


def test_check_prints_the_lines_of_a_static_filter(run: Any, made: Path, tmp_path: Path) -> None:
    (tmp_path / "asked").write_text("host3.example\nother\nhost999.example\n")
    ran = run("bloom", "check", made, tmp_path / "asked")
    assert (ran.code, ran.out) == (0, "host3.example\nhost999.example\n")
    ran = run("bloom", "check", made, tmp_path / "asked", "--invert")
    assert ran.out == "other\n"
    assert run("bloom", "check", made, tmp_path / "asked", "--allow", made).out == ""


def test_info_describes_a_static_filter(run: Any, made: Path) -> None:
    facts = json.loads(run("bloom", "info", made, "--format", "jsonl").out)
    assert facts["kind"] == "static filter, 8-bit fingerprints"
    assert (facts["bytes"], facts["estimated_lines"], facts["fp_rate"]) == (1_408, 1_000, 2.0**-8)
    assert facts["fill"] is None
    shown = run("bloom", "info", made, "--format", "table").out
    assert "1,000" in shown
    assert "fill" not in shown


def test_a_refusal_is_one_line_and_changes_nothing(refused: Any, made: Path, lines: Path, tmp_path: Path) -> None:
    BloomFilter(50, 0.01).save("plain")
    Path("cut.static").write_bytes(made.read_bytes()[:-1])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    refused("""
        bloom add made.static lines.txt
        bloom remove made.static lines.txt
        bloom dedupe made.static lines.txt
        bloom dump made.static --output raw
        bloom merge made.static plain --output u
        bloom merge plain made.static --output u
        bloom create f made.static --static
        bloom create made.static lines.txt --static
        bloom create f lines.txt --static --capacity 5
        bloom create f lines.txt --static --fp-rate 1e-10
        bloom create f lines.txt --static --counting
        bloom create f lines.txt --static --redis redis://localhost:1/0
        bloom check cut.static lines.txt
    """)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_no_lines_make_an_empty_filter_with_a_message(run: Any, tmp_path: Path) -> None:
    ran = run("bloom", "create", tmp_path / "f", "/dev/null", "--static")
    assert (ran.code, ran.err) == (0, "spvfilter: no lines in /dev/null: nothing was added\n")
    assert len(StaticFilter.open(tmp_path / "f")) == 0


@pytest.mark.parametrize(("keys", "smaller"), [(100, False), (10_000, True)])
def test_size_compares_with_a_static_filter(run: Any, keys: int, smaller: bool) -> None:
    argv = "bloom", "size", "--capacity", keys, "--fp-rate", 0.00390625
    found = json.loads(run(*argv, "--format", "jsonl").out)
    assert found["static"]["fingerprint_bits"] == 8
    assert (found["static"]["bytes"] < found["bytes"]) is smaller
    assert ("It is larger than this filter." in run(*argv, "--format", "table").out) is not smaller
