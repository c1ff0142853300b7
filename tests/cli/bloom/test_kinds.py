"""`bloom` with counting filters, created filters and raw bits. Bad input is in test_errors.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom import BloomFilter, CountingBloomFilter, ScalableBloomFilter, SipHash
from support.commands.processes import LINES, on_terminal, process

SHAPE = ("--capacity", 1_000, "--fp-rate", 1e-6)


def text(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


# Counting filters


def test_lines_are_removed_from_a_counting_filter(run: Any, tmp_path: Path, lines: Path) -> None:
    path = tmp_path / "f"
    assert run("bloom", "create", path, lines, lines, *SHAPE, "--counting").err == "spvfilter: 6 lines, 3 of them new\n"
    assert CountingBloomFilter.open(path).count(b"beta") == 2
    gone = text(tmp_path / "gone", "beta", "gamma")
    assert run("bloom", "remove", path, gone) == (0, "", "spvfilter: 2 lines, all of them removed\n")
    assert run("bloom", "check", path, lines).out.encode() == LINES  # each line was added twice
    ran = run("bloom", "remove", path, text(tmp_path / "more", "beta", "other", "beta"))
    assert ran == (1, "", "spvfilter: 3 lines, 1 of them removed: the other 2 were not in the filter\n")
    expected = CountingBloomFilter(1_000, 1e-6)
    expected.update([b"alpha", b"alpha", b"gamma"])
    assert CountingBloomFilter.open(path) == expected
    assert run("bloom", "info", path, "--format", "table").out.splitlines()[2].split(maxsplit=1) == [
        "kind",
        "counting Bloom filter",
    ]
    assert run("bloom", "remove", path, text(tmp_path / "none")).err == "spvfilter: 0 lines, all of them removed\n"


def test_removing_absent_lines_changes_no_counter(run: Any, tmp_path: Path, lines: Path) -> None:
    path = tmp_path / "f"
    run("bloom", "create", path, lines, "--capacity", 5, "--fp-rate", 0.3, "--counting", "--key", "0a" * 16)
    before = path.read_bytes()
    made = CountingBloomFilter.open(path)
    strangers = [number for number in range(200) if str(number).encode() not in made]
    assert run("bloom", "remove", path, text(tmp_path / "other", *strangers)).code == 1
    assert path.read_bytes() == before


def test_removed_lines_may_come_from_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert process("bloom", "create", path, "-", *SHAPE, "--counting", "-0", stdin=b"a\nb\0c\0").returncode == 0
    assert process("bloom", "remove", path, "-0", stdin=b"a\nb\0").returncode == 0
    assert CountingBloomFilter.open(path).contains_many([b"a\nb", b"c"]) == bytes([0, 1])


def test_removed_lines_leave_room_for_other_lines(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "f"
    many = text(tmp_path / "many", *range(60))
    assert run("bloom", "create", path, many, "--capacity", 100, "--fp-rate", 1e-6, "--counting").code == 0
    assert run("bloom", "remove", path, many).code == 0
    assert run("bloom", "add", path, text(tmp_path / "others", *range(1000, 1100))).code == 0


# Filters that are created if they are missing


@pytest.mark.parametrize(
    ("options", "kind"),
    [([], BloomFilter), (["--scalable"], ScalableBloomFilter), (["--counting"], CountingBloomFilter)],
)
def test_add_creates_a_missing_filter_like_create(
    run: Any, tmp_path: Path, lines: Path, options: list[str], kind: Any
) -> None:
    path, other = tmp_path / "f", tmp_path / "g"
    grows = "a scalable filter that begins with" if "--scalable" in options else "a filter for"
    told = f"spvfilter: {path} did not exist: made {grows} 1,000 lines\nspvfilter: 3 lines, 3 of them new\n"
    assert run("bloom", "add", path, lines, *SHAPE, *options) == (0, "", told)
    assert run("bloom", "create", other, lines, *SHAPE, *options).code == 0
    assert path.read_bytes() == other.read_bytes()
    # the same command again
    assert run("bloom", "add", path, lines, *SHAPE, *options) == (0, "", "spvfilter: 3 lines, 0 of them new\n")
    assert run("bloom", "add", path, lines, "--capacity", 1_000).code == 0
    assert isinstance(kind.open(path), kind)


def test_dedupe_creates_a_scalable_filter(run: Any, tmp_path: Path) -> None:
    path, source = tmp_path / "seen", text(tmp_path / "source", *range(300), *range(300))
    ran = run("bloom", "dedupe", path, source, "--capacity", 50)
    assert (ran.code, ran.out.split()) == (0, [str(number) for number in range(300)])
    assert ran.err == f"spvfilter: {path} did not exist: made a scalable filter that begins with 50 lines\n"
    made = ScalableBloomFilter.open(path)
    assert (made.initial_capacity, made.nominal_fp_rate) == (50, 1e-6)
    text(source, *range(290, 310))
    assert run("bloom", "dedupe", path, source, "--capacity", 50) == (
        0,
        "".join(f"{number}\n" for number in range(300, 310)),
        "",
    )
    assert (
        run("bloom", "dedupe", tmp_path / "fixed", source, "--capacity", 50, "--fp-rate", 0.001, "--hash-funcs", 4).code
        == 0
    )
    assert BloomFilter.open(tmp_path / "fixed").hash_funcs == 4


def test_dedupe_does_not_take_a_dash_for_a_filter(tmp_path: Path) -> None:
    ran = process("bloom", "dedupe", "-", "--capacity", 5, stdin=b"a\na\nb\n")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"a\nb\n", b"")


def test_a_given_key_must_match_the_filters_key(run: Any, tmp_path: Path, lines: Path) -> None:
    path = tmp_path / "f"
    for _ in range(2):
        assert run("bloom", "add", path, lines, *SHAPE, "--key", "random").code == 0
    key = BloomFilter.open(path).hashing.key
    assert key != bytes(16)
    assert run("bloom", "add", path, lines, "--key", key.hex()).code == 0
    assert run("bloom", "dedupe", path, lines, "--key", key.hex()) == (0, "", "")


def test_no_filter_is_created_if_a_line_is_refused(run: Any, tmp_path: Path) -> None:
    ran = run("bloom", "add", tmp_path / "f", text(tmp_path / "many", *range(100)), "--capacity", 10, "--fp-rate", 0.01)
    assert (ran.code, (tmp_path / "f").exists()) == (2, False)


def test_larger_counters_count_beyond_15(run: Any, tmp_path: Path) -> None:
    path, many = tmp_path / "c", text(tmp_path / "many", *["a"] * 300)
    assert run("bloom", "create", path, many, *SHAPE, "--counting", "--counter-bits", 16).code == 0
    assert CountingBloomFilter.open(path).count(b"a") == 300
    assert run("bloom", "add", tmp_path / "d", many, *SHAPE, "--counting", "--counter-bits", 8).code == 0
    assert CountingBloomFilter.open(tmp_path / "d").count(b"a") == 255


# Raw bits


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (BloomFilter(300, 0.01), "--capacity 300 --fp-rate 0.01 --hash-funcs 7"),
        (BloomFilter(300, 0.01, 3, partitioned=True), "--capacity 300 --fp-rate 0.01 --hash-funcs 3 --partitioned"),
        (BloomFilter(bits=1_001, hash_funcs=5), "--bits 1001 --hash-funcs 5"),
        (CountingBloomFilter(300, 1e-05), "--capacity 300 --fp-rate 1e-05 --hash-funcs 17 --counting"),
        (
            CountingBloomFilter(bits=99, hash_funcs=5, counter_bits=16),
            "--bits 99 --hash-funcs 5 --counting --counter-bits 16",
        ),
    ],
)
def test_a_dump_prints_its_load_command(
    run: Any, tmp_path: Path, made: BloomFilter | CountingBloomFilter, options: str
) -> None:
    made = made.copy()
    made.update(b"%d" % number for number in range(200))
    made.save(tmp_path / "f")
    ran = run("bloom", "dump", tmp_path / "f", "--output", tmp_path / "raw")
    assert ran == (0, "", f"spvfilter: {len(made.body):,} bytes: load them with {options}\n")
    assert (tmp_path / "raw").read_bytes() == made.dump()
    assert run("bloom", "load", tmp_path / "g", tmp_path / "raw", *options.split()) == (0, "", "")
    assert (tmp_path / "g").read_bytes() == (tmp_path / "f").read_bytes()


def test_raw_bits_can_be_piped(tmp_path: Path, made: Path) -> None:
    ran = process("bloom", "dump", made)
    assert (ran.returncode, ran.stdout) == (0, BloomFilter.open(made).dump())
    assert (
        process("bloom", "load", tmp_path / "g", "--capacity", 1_000, "--fp-rate", 1e-6, stdin=ran.stdout).returncode
        == 0
    )
    assert (tmp_path / "g").read_bytes() == made.read_bytes()
    for raw in (ran.stdout[:-1], ran.stdout + b"x"):
        bad = process("bloom", "load", tmp_path / "h", "--capacity", 1_000, "--fp-rate", 1e-6, stdin=raw)
        assert (bad.returncode, bad.stdout, (tmp_path / "h").exists()) == (2, b"", False)
        assert bad.stderr.startswith(b"spvfilter: standard input: cells at byte 359")


def test_load_needs_the_key_of_the_dump(run: Any, tmp_path: Path, lines: Path) -> None:
    path, key = tmp_path / "f", "07" * 16
    run("bloom", "create", path, lines, "--capacity", 10, "--fp-rate", 0.01, "--key", key)
    told = run("bloom", "dump", path, "--output", tmp_path / "raw").err
    assert told.endswith("load them with --capacity 10 --fp-rate 0.01 --hash-funcs 7 and its --key\n")
    assert key not in told
    assert (
        run("bloom", "load", tmp_path / "g", tmp_path / "raw", "--capacity", 10, "--fp-rate", 0.01, "--key", key).code
        == 0
    )
    assert (tmp_path / "g").read_bytes() == path.read_bytes()
    assert BloomFilter.open(tmp_path / "g").hashing == SipHash(bytes.fromhex(key))


def test_dump_says_if_load_cannot_restore_the_filter(run: Any, tmp_path: Path) -> None:
    BloomFilter(10, 0.01, encode="int64").save(tmp_path / "f")
    told = run("bloom", "dump", tmp_path / "f", "--output", tmp_path / "raw").err
    assert told.endswith(
        "`load` cannot restore this filter: its keys are int64, hashed by fast; a Python program can\n"
    )


def test_files_are_replaced_only_with_force(run: Any, tmp_path: Path, made: Path) -> None:
    raw, before = tmp_path / "raw", made.read_bytes()
    raw.write_bytes(b"something")
    assert run("bloom", "dump", made, "--output", raw).code == 2
    assert raw.read_bytes() == b"something"
    assert run("bloom", "dump", made, "--output", raw, "--force").code == 0
    made.write_bytes(bytes(BloomFilter(5, 0.1)))
    assert run("bloom", "load", made, raw, "--capacity", 1_000, "--fp-rate", 1e-6).code == 2
    assert run("bloom", "load", made, raw, "--capacity", 1_000, "--fp-rate", 1e-6, "--force").code == 0
    assert made.read_bytes() == before


def test_raw_bytes_are_not_printed_on_a_terminal(made: Path) -> None:
    code, shown = on_terminal("bloom", "dump", made)
    assert (code, shown) == (
        2,
        "spvfilter: the terminal cannot show raw bytes: give --output, or redirect standard output\n",
    )


def test_an_endless_input_is_read_only_to_its_limit(run: Any, tmp_path: Path) -> None:
    ran = run("bloom", "load", tmp_path / "f", "/dev/zero", "--capacity", 100, "--fp-rate", 0.01)
    assert (ran.code, ran.err) == (2, "spvfilter: /dev/zero: cells at byte 120: 960 bits take 120 bytes, not 121\n")
