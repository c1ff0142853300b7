"""`bloom import` and `bloom export`: filter files of other libraries, and files and options that are refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom import BloomFilter, CountingBloomFilter
from spvfilter.bloom.exchange import (
    BitsAndBloomsHash,
    CassandraHash,
    GuavaHash,
    redisbloom_filter,
    spark_filter,
    write_redisbloom,
)
from support.commands.processes import process

SOME = b"abc\nxyz\n"
GUAVA = bytes.fromhex(
    "0107000000020a088000020248231088048221280000"
)  # made by Guava 31.1: grün, abc, "", and a long key
GO = (64).to_bytes(8, "big") + (3).to_bytes(8, "big") + (64).to_bytes(8, "big") + b"\xff" * 8
CASSANDRA = bytes.fromhex("00000003 00000001") + b"\xff" * 8
PYBLOOM = bytes.fromhex(  # made by pybloom-live 3.1 for 10 keys at 0.1: a, b, grün, 5
    "9a9999999999b93f04000000000000000c000000000000000a0000000000000004000000000000000c8429a8b008"
)

MMAP3 = (  # made by pybloomfiltermmap3 0.6.3 for 10 keys at 0.05: a, b, grün
    bytes.fromhex("4d42495441525241598000000000000000b00400000a000000000000009a9999999999a93f04000000")
    + bytes.fromhex("01000000ffffffff4d00000009000000").ljust(1036, b"\0")
    + b"\x01\x01".ljust(203, b"\0")
    + bytes.fromhex("00900000100080000002100110004090")
)


def test_guava_file_is_imported_checked_extended_and_exported(run: Any, tmp_path: Path) -> None:
    foreign, made = tmp_path / "guava", tmp_path / "made"
    foreign.write_bytes(GUAVA)
    ran = run("bloom", "import", made, foreign, "--from", "guava", "--funnel", "byteArray")
    assert ran.code == 0 and "about 3 keys" in ran.err
    (tmp_path / "lines").write_bytes(SOME)
    assert run("bloom", "check", made, tmp_path / "lines").out == "abc\n"
    assert run("bloom", "export", made, "--to", "guava", "--output", tmp_path / "out").code == 0
    assert (tmp_path / "out").read_bytes() == GUAVA
    assert run("bloom", "add", made, tmp_path / "lines").code == 0
    assert run("bloom", "check", made, tmp_path / "lines").out.encode() == SOME
    assert BloomFilter.open(made).hashing == GuavaHash()


@pytest.mark.parametrize(
    ("words", "raw", "hashing"),
    [
        (["bits-and-blooms"], GO, BitsAndBloomsHash()),
        (["cassandra", "--release", "4"], CASSANDRA, CassandraHash(4)),
        (["cassandra", "--release", "2", "--text"], CASSANDRA, CassandraHash(2)),
    ],
)
def test_other_files_are_imported_from_standard_input(
    words: list[str], raw: bytes, hashing: object, tmp_path: Path
) -> None:
    ran = process("bloom", "import", tmp_path / "made", "--from", *words, stdin=raw)
    assert ran.returncode == 0, ran.stderr
    made = BloomFilter.open(tmp_path / "made")
    assert made.hashing == hashing
    assert ("abc" if "--text" in words else b"abc") in made


def test_pybloom_live_file_is_imported_with_its_version(run: Any, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(PYBLOOM)
    words = ("bloom", "import", tmp_path / "made", tmp_path / "foreign", "--from", "pybloom-live")
    assert "pass version=" in run(*words).err
    assert run(*words, "--release", 3).code == 0
    (tmp_path / "lines").write_text("grün\nother\n", encoding="utf-8")
    assert run("bloom", "check", tmp_path / "made", tmp_path / "lines").out == "grün\n"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_scalable_pybloom_live_file_needs_one_filter(count: int, run: Any, tmp_path: Path) -> None:
    head = struct.pack("<idQdi", 4, 0.9, 10, 0.1, count)
    (tmp_path / "foreign").write_bytes(head + struct.pack("<Q", len(PYBLOOM)) * count + PYBLOOM * count)
    ran = run("bloom", "import", tmp_path / "made", tmp_path / "foreign", "--from", "pybloom-live", "--release", 3)
    assert (tmp_path / "made").exists() == (ran.code == 0) == (count == 1)
    assert (f"expected 1 sub-filter, got {count}" in ran.err) == (count != 1)


def test_rbloom_is_refused_by_name_with_the_reason(run: Any, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(b"\x06" + bytes(7) + b"\xff" * 120)
    for library in ("rbloom", "spark", "pybloom-live"):
        ran = run("bloom", "import", tmp_path / "made", tmp_path / "foreign", "--from", library)
        assert (ran.code, "rbloom file, which cannot be read because it does not contain" in ran.err) == (2, True)


def test_pybloomfiltermmap3_file_is_read_directly(run: Any, tmp_path: Path) -> None:
    file, lines = tmp_path / "seen.mmap", tmp_path / "lines"
    file.write_bytes(MMAP3)
    lines.write_text("a\nother\ngrün\n", encoding="utf-8")
    assert run("bloom", "check", file, lines).out == "a\ngrün\n"
    assert "128" in run("bloom", "info", file).out
    BloomFilter(10, 0.1).save(tmp_path / "made")
    assert run("bloom", "add", tmp_path / "made", lines).code == 0
    assert run("bloom", "check", tmp_path / "made", lines, "--allow", file).out == "other\n"
    for words in (["add", file, lines], ["dedupe", file, lines], ["merge", file, file, "--output", tmp_path / "no"]):
        ran = run("bloom", *words)
        assert (ran.code, "is a pybloomfiltermmap3 file, which `bloom check`" in ran.err) == (2, True)
    ran = run("bloom", "create", file, lines, "--capacity", 10, "--fp-rate", 0.1, "--force")
    assert (ran.code, "exists and is not a filter" in ran.err) == (2, True)
    assert "expected lines, but this is a filter" in run("bloom", "add", tmp_path / "made", file).err
    ran = run("bloom", "import", tmp_path / "no", file, "--from", "spark")
    assert (ran.code, "read it with read_pybloomfiltermmap3 or `spvfilter bloom check`" in ran.err) == (2, True)
    assert file.read_bytes() == MMAP3
    for damaged in (MMAP3[:-1], MMAP3 + b"x", MMAP3[:9]):
        file.write_bytes(damaged)
        ran = run("bloom", "check", file, lines)
        assert (ran.code, ran.err.startswith(f"spvfilter: {file}: ")) == (2, True)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("library", ["spark", "redisbloom"])
def test_spark_and_redisbloom_come_back(library: str, run: Any, tmp_path: Path) -> None:
    made = spark_filter(10, 0.01) if library == "spark" else redisbloom_filter(10, 0.01)
    made.update([b"abc", b"def"])
    made.save(tmp_path / "made")
    assert run("bloom", "export", tmp_path / "made", "--to", library, "--output", tmp_path / "out").code == 0
    assert run("bloom", "import", tmp_path / "again", tmp_path / "out", "--from", library).code == 0
    assert BloomFilter.open(tmp_path / "again") == made
    raw = (tmp_path / "out").read_bytes()
    for damaged in (raw + b"\0", raw[:-1], b""):
        (tmp_path / "damaged").write_bytes(damaged)
        assert run("bloom", "import", tmp_path / "no", tmp_path / "damaged", "--from", library).code == 2
        assert not (tmp_path / "no").exists()


def test_grown_filter_of_redisbloom_is_refused(run: Any, tmp_path: Path) -> None:
    (_, header), (_, body) = write_redisbloom(redisbloom_filter(10, 0.01))
    two = header[:8] + (2).to_bytes(4, "little") + header[12:20] + 2 * header[20:] + 2 * body
    (tmp_path / "two").write_bytes(two)
    assert (
        "expected 1 sub-filter, got 2"
        in run("bloom", "import", tmp_path / "no", tmp_path / "two", "--from", "redisbloom").err
    )


def test_wrong_import_or_export_is_an_error(refused: Any) -> None:
    Path("foreign").write_bytes(GUAVA)
    BloomFilter(10, 0.1).save("plain")
    CountingBloomFilter(10, 0.1).save("counting")
    Path("there").touch()
    refused("""
        bloom import made foreign --from guava
        bloom import made foreign --from guava --funnel unencodedChars
        bloom import made foreign --from guava --funnel string --charset latin-1
        bloom import made foreign --from guava --release 3
        bloom import made foreign --from spark --funnel string
        bloom import made foreign --from cassandra
        bloom import made foreign --from spark
        bloom export plain --to guava --output out
        bloom export counting --to guava --output out
        bloom export plain --to guava --output there
    """)
    assert not Path("made").exists()
    assert not Path("out").exists()


def test_existing_filter_is_replaced_only_by_force(run: Any, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(GUAVA)
    BloomFilter(10, 0.1).save(tmp_path / "made")
    words = ("bloom", "import", tmp_path / "made", tmp_path / "foreign", "--from", "guava", "--funnel", "byteArray")
    assert "--force replaces it" in run(*words).err
    assert run(*words, "--force").code == 0
