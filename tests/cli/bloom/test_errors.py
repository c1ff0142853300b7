"""`bloom` with filters in files, given bad input: one line per error, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import CustomHash
from support.processes import LINES, process

SHAPE = ("--capacity", "10", "--fp-rate", "0.01")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "the following arguments are required: ACTION"),
        (["frobnicate"], "unknown action, expected one of: create, add, check, dedupe, info, merge, size (see 'spvfilter bloom --help')"),
        *[([action], "the following arguments are required: FILTER") for action in ("add", "check", "info")],
        (["create", *SHAPE], "the following arguments are required: FILTER (see 'spvfilter bloom create --help')"),
        (["merge", "--output", "new"], "the following arguments are required: FILTER"),
        (["create", "new"], "the following arguments are required: --capacity, --fp-rate (see 'spvfilter bloom create --help')"),
        (["create", "new", "--capacity", "10"], "the following arguments are required: --fp-rate"),
        (["create", "new", "--capacity", "0", "--fp-rate", "0.01"], "argument --capacity: expected a whole number from 1"),
        (["create", "new", "--capacity", "-5", "--fp-rate", "0.01"], "argument --capacity"),
        (["create", "new", "--capacity", "10", "--fp-rate", "nan"], "argument --fp-rate: expected a number between 0 and 1"),
        (["create", "new", "--capacity", "10", "--fp-rate", "1"], "argument --fp-rate"),
        (["create", "new", *SHAPE, "--hash-funcs", "0"], "argument --hash-funcs: expected a whole number from 1"),
        (["create", "new", *SHAPE, "--key", "00"], "argument --key: expected a key of 16 bytes (32 hex digits), not of 1"),
        (["create", "new", *SHAPE, "--key", "zz"], "argument --key: expected pairs of hex digits"),
        (["create", "new", "--capacity", str(1 << 48), "--fp-rate", "0.01"], "a filter of "),
        (["create", "new", "--capacity", str(1 << 48), "--fp-rate", "0.01", "--hash-funcs", "1"], "a filter of "),
        (["dedupe", "lines.txt", "--capacity", str(1 << 48)], "a filter of "),
        (["create", "new", "missing", *SHAPE], "missing: No such file or directory"),
        (["create", "new", ".", *SHAPE], ".: Is a directory"),
        (["create", "new", "made.bloom", *SHAPE], "made.bloom: a filter, where lines are expected"),
        (["create", "made.bloom", *SHAPE], "made.bloom exists: --force replaces it"),
        (["create", "lines.txt", *SHAPE, "--force"], "lines.txt exists and is not a filter"),
        (["create", "folder", *SHAPE], "folder exists and is not a filter"),
        (["create", "folder", *SHAPE, "--force"], "folder exists and is not a filter"),
        (["create", "nowhere/new", *SHAPE], "nowhere/new: "),
        (["create", "lines.txt/new", *SHAPE], "lines.txt/new: "),
        (["create", "/proc/new", *SHAPE], "/proc/new: "),
        (["create", "made.bloom", "missing", *SHAPE, "--force"], "missing: No such file or directory"),
        (["add", "missing", "lines.txt"], "missing: No such file or directory"),
        (["add", "made.bloom", "lines.txt", "missing"], "missing: No such file or directory"),
        (["add", "made.bloom", "other.bloom"], "other.bloom: a filter, where lines are expected"),
        (["add", "folder", "lines.txt"], "folder: Is a directory"),
        (["check", "made.bloom", "missing"], "missing: No such file or directory"),
        (["check", "made.bloom", "lines.txt", "--allow", "missing"], "missing: No such file or directory"),
        (["check", "made.bloom", "lines.txt", "--allow", "flipped.bloom"], "flipped.bloom: CRC at byte"),
        (["dedupe", "made.bloom", "missing"], "missing: No such file or directory"),
        (["dedupe", "lines.txt", "made.bloom"], "made.bloom: a filter, where lines are expected"),
        (["dedupe", "made.bloom", "lines.txt", "--capacity", "5"], "an existing filter has its own --capacity"),
        *[([action, "empty", "lines.txt"], "empty: header at byte 0: truncated") for action in ("add", "check", "info")],
        *[([action, "lines.txt", "lines.txt"], "lines.txt: header at byte 0: truncated") for action in ("add", "check", "info")],
        *[([action, "cut.bloom", "lines.txt"], "cut.bloom: file at byte ") for action in ("add", "check", "dedupe", "info")],
        *[([action, "long.bloom", "lines.txt"], "long.bloom: file at byte ") for action in ("add", "check", "dedupe", "info")],
        *[([action, "flipped.bloom", "lines.txt"], "flipped.bloom: CRC at byte ") for action in ("add", "check", "dedupe", "info")],
        *[([action, "head.bloom", "lines.txt"], "head.bloom: header CRC at byte 60") for action in ("add", "check", "dedupe", "info")],
        *[([action, "int.bloom", "lines.txt"], "int.bloom does not hold lines: its keys are") for action in ("add", "check", "dedupe")],
        *[([action, "own.bloom", "lines.txt"], "own.bloom: the file was made with a custom") for action in ("add", "check", "info")],
        (["merge", "made.bloom", "other.bloom"], "the following arguments are required: --output"),
        (["merge", "made.bloom", "other.bloom", "--output", "new"], "made.bloom and other.bloom cannot be merged: filters of"),
        (["merge", "made.bloom", "counting.bloom", "--output", "new"], "made.bloom and counting.bloom cannot be merged: one of"),
        (["merge", "made.bloom", "missing", "--output", "new"], "missing: No such file or directory"),
        (["merge", "made.bloom", "flipped.bloom", "--output", "made.bloom", "--force"], "flipped.bloom: CRC"),
        (["merge", "made.bloom", "made.bloom", "--output", "other.bloom"], "other.bloom exists: --force replaces it"),
        (["merge", "made.bloom", "made.bloom", "--output", "nowhere/new"], "nowhere/new: "),
        (["create", "new", *SHAPE, "--invert"], "unknown option --invert (see 'spvfilter bloom create --help')"),
        (["add", "made.bloom", "--capacity", "5"], "unknown option --capacity (see 'spvfilter bloom add --help')"),
        (["check", "made.bloom", "--force"], "unknown option --force (see 'spvfilter bloom check --help')"),
        (["check", "made.bloom", "--hash-funcs", "5"], "unknown option --hash-funcs (see 'spvfilter bloom check --help')"),
        (["dedupe", "--allow", "lines.txt"], "unknown option --allow (see 'spvfilter bloom dedupe --help')"),
        (["info", "made.bloom", "--null"], "unknown option --null (see 'spvfilter bloom info --help')"),
        (["merge", "made.bloom", "--output", "new", "--key", "random"], "unknown option --key (see 'spvfilter bloom merge --help')"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_exit_code_2_and_changes_nothing(
    run: Any, tmp_path: Path, made: Path, lines: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = made.read_bytes()
    BloomFilter(50, 0.01).save("other.bloom")
    CountingBloomFilter(1_000, 1e-6).save("counting.bloom")
    BloomFilter(50, 0.01, encode="int64").save("int.bloom")
    BloomFilter(50, 0.01, hashing=CustomHash("own", lambda key, i: i)).save("own.bloom")
    for name, damaged in {
        "cut": raw[:-1], "long": raw + b"x", "flipped": raw[:-20] + b"\x55" + raw[-19:], "head": raw[:30] + b"\x55" + raw[31:]
    }.items():  # fmt: skip
        Path(f"{name}.bloom").write_bytes(damaged)
    Path("folder").mkdir()
    Path("empty").touch()
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    ran = run("bloom", *argv)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith(f"spvfilter: {said}")
    assert ran.out.encode() in ((b"", LINES) if argv[:2] == ["dedupe", "lines.txt"] else (b"",))
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert not list(Path("folder").iterdir())


WITHOUT_PRIVILEGE = (  # without root's CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, which other users do not have
    "import ctypes, sys; from spvfilter.cli import main; libc = ctypes.CDLL(None, use_errno=True); "
    "head, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(); "
    "assert libc.capget(head, sets) == 0; sets[0] &= ~6; sets[1] &= ~6; assert libc.capset(head, sets) == 0; sys.exit(main())"
)


def test_what_may_not_be_read_or_written_is_said_before_anything_is_read(tmp_path: Path, made: Path, lines: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        for argv in (["create", tmp_path / "new", lines, *SHAPE], ["add", made, lines], ["dedupe", made, lines]):
            ran = process("bloom", *argv, code=WITHOUT_PRIVILEGE)
            assert (ran.returncode, ran.stdout) == (2, b"")
            assert b"is not a writable directory" in ran.stderr
        lines.chmod(0)
        ran = process("bloom", "check", made, lines, code=WITHOUT_PRIVILEGE)
        assert ran.stderr == f"spvfilter: {lines}: Permission denied\n".encode()
    finally:
        tmp_path.chmod(0o700)


def test_a_disk_that_is_full_leaves_the_filter_as_it_was(made: Path, lines: Path) -> None:
    before = made.read_bytes()
    lines.write_bytes(b"delta\n")
    ran = process("bloom", "add", made, lines, code=FULL)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (2, f"spvfilter: {made}: cannot be written: File too large".encode())
    assert made.read_bytes() == before
    assert not [path for path in made.parent.iterdir() if path.name.startswith(".")]


FULL = (  # a limit on the size of files stands for a full disk
    "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
    "from spvfilter.cli import main; sys.exit(main())"
)


def test_a_secret_in_the_place_of_the_action_is_not_repeated(run: Any) -> None:
    assert "correct horse" not in run("bloom", "correct horse battery").err
