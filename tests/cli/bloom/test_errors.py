"""`bloom` with filters in files, given bad input: one line for each error, and no file is overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import CustomHash, SipHash
from spvfilter.bloom.scalable import ScalableBloomFilter
from support.commands.processes import LINES, process

SHAPE = ("--capacity", "10", "--fp-rate", "0.01")


@pytest.mark.few(17)
@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "the following arguments are required: ACTION"),
        (
            ["frobnicate"],
            "unknown action: choose from create, add, remove, check, dedupe, info, merge, dump, load, import, export,",
        ),
        *[([action], "the following arguments are required: FILTER") for action in ("add", "check", "info")],
        (["create", *SHAPE], "the following arguments are required: FILTER (see 'spvfilter bloom create --help')"),
        (["merge", "--output", "new"], "the following arguments are required: FILTER"),
        (
            ["create", "new"],
            "the following arguments are required: --capacity, --fp-rate (see 'spvfilter bloom create --help')",
        ),
        (["create", "new", "--capacity", "10"], "the following arguments are required: --fp-rate"),
        (
            ["create", "new", "--capacity", "0", "--fp-rate", "0.01"],
            "argument --capacity: expected a whole number from 1",
        ),
        (["create", "new", "--capacity", "-5", "--fp-rate", "0.01"], "argument --capacity"),
        (
            ["create", "new", "--capacity", "10", "--fp-rate", "nan"],
            "argument --fp-rate: expected a number between 0 and 1",
        ),
        (["create", "new", "--capacity", "10", "--fp-rate", "1"], "argument --fp-rate"),
        (["create", "new", *SHAPE, "--hash-funcs", "0"], "argument --hash-funcs: expected a whole number from 1"),
        (
            ["create", "new", *SHAPE, "--key", "00"],
            "argument --key: expected a key of 16 bytes (32 hex digits), got 1",
        ),
        (["create", "new", *SHAPE, "--key", "zz"], "argument --key: expected pairs of hex digits"),
        (["create", "new", "--capacity", str(1 << 48), "--fp-rate", "0.01"], "a filter of "),
        (["create", "new", "--capacity", str(1 << 48), "--fp-rate", "0.01", "--hash-funcs", "1"], "a filter of "),
        (["dedupe", "lines.txt", "--capacity", str(1 << 48)], "a filter of "),
        (["create", "new", "missing", *SHAPE], "missing: No such file or directory"),
        (["create", "new", ".", *SHAPE], ".: Is a directory"),
        (["create", "new", "made.bloom", *SHAPE], "made.bloom: expected lines, but this is a filter"),
        (["create", "made.bloom", *SHAPE], "made.bloom exists: --force replaces it"),
        (["create", "lines.txt", *SHAPE, "--force"], "lines.txt exists and is not a filter"),
        (["create", "folder", *SHAPE], "folder exists and is not a filter"),
        (["create", "folder", *SHAPE, "--force"], "folder exists and is not a filter"),
        (["create", "nowhere/new", *SHAPE], "nowhere/new: "),
        (["create", "lines.txt/new", *SHAPE], "lines.txt/new: "),
        (["create", "/proc/new", *SHAPE], "/proc/new: "),
        (["create", "made.bloom", "missing", *SHAPE, "--force"], "missing: No such file or directory"),
        (
            ["add", "missing", "lines.txt"],
            "missing: No such file or directory: give --capacity and --fp-rate to create it",
        ),
        (
            ["add", "missing", "lines.txt", "--capacity", "9"],
            "missing: No such file or directory: give --capacity and --fp-rate to create it",
        ),
        (["add", "missing", "nowhere", *SHAPE], "nowhere: No such file or directory"),
        (["add", "nowhere/new", "lines.txt", *SHAPE], "nowhere/new: "),
        (["add", "lines.txt", "lines.txt", *SHAPE], "lines.txt: this is not a filter file: `spvfilter bloom create`"),
        (
            ["add", "made.bloom", "lines.txt", "--fp-rate", "0.1"],
            "made.bloom exists and was made with --fp-rate 1e-06, not 0.1: omit",
        ),
        (
            ["add", "made.bloom", "lines.txt", "--hash-funcs", "3"],
            "made.bloom exists and was made with --hash-funcs 20, not 3: omit",
        ),
        (
            ["add", "made.bloom", "lines.txt", "--key", "random"],
            "made.bloom exists and was made without --key: omit --key",
        ),
        (
            ["add", "keyed.bloom", "lines.txt", "--key", "00" * 16],
            "keyed.bloom exists and was made with another --key: omit --key",
        ),
        (["add", "made.bloom", "lines.txt", "--counting"], "made.bloom is a Bloom filter: omit --counting"),
        (
            ["add", "counting.bloom", "lines.txt", "--scalable"],
            "counting.bloom is a counting Bloom filter: omit --scalable",
        ),
        (
            ["add", "new", "lines.txt", *SHAPE, "--counting", "--scalable"],
            "argument --scalable: not allowed with argument --counting",
        ),
        (
            ["add", "new", "lines.txt", *SHAPE, "--scalable", "--hash-funcs", "3"],
            "--scalable chooses the number of hash functions",
        ),
        (["dedupe", "missing"], "missing: No such file or directory: give --capacity to create it"),
        (["dedupe", "missing", "nowhere", "--capacity", "5"], "nowhere: No such file or directory"),
        (["dedupe", "nowhere/new", "lines.txt", "--capacity", "5"], "nowhere/new: "),
        (
            ["dedupe", "counting.bloom", "lines.txt"],
            "counting.bloom is a counting filter, which would count repeated lines",
        ),
        (["remove", "missing", "lines.txt"], "missing: No such file or directory"),
        (["remove", "counting.bloom", "missing"], "missing: No such file or directory"),
        (
            ["remove", "made.bloom", "lines.txt"],
            "made.bloom is a Bloom filter, which cannot remove lines: make a counting filter",
        ),
        (
            ["remove", "scalable.bloom", "lines.txt"],
            "scalable.bloom is a scalable Bloom filter, which cannot remove lines",
        ),
        (
            ["remove", "counting.bloom", "lines.txt", "--counting"],
            "unknown option --counting (see 'spvfilter bloom remove --help')",
        ),
        (["dump", "missing"], "missing: No such file or directory"),
        (["dump", "flipped.bloom", "--output", "new"], "flipped.bloom: CRC at byte "),
        (
            ["dump", "scalable.bloom", "--output", "new"],
            "scalable.bloom is a scalable filter, which consists of several filters: it has no raw",
        ),
        (["dump", "made.bloom", "--output", "lines.txt"], "lines.txt exists: --force replaces it"),
        (["dump", "made.bloom", "--output", "folder", "--force"], "folder exists and is not a regular file"),
        (["dump", "made.bloom", "--output", "nowhere/new"], "nowhere/new: nowhere is not a writable directory"),
        (["load", "new", "missing", *SHAPE], "missing: No such file or directory"),
        (["load", "new", "folder", *SHAPE], "folder: Is a directory"),
        (["load", "new", "lines.txt", *SHAPE], "lines.txt: expected 12 bytes, got 17"),
        (
            ["load", "new", "lines.txt"],
            "give the options that the filter was made with: --capacity and --fp-rate, or --bits",
        ),
        (["load", "new", "lines.txt", "--capacity", "5"], "give the options that the filter was made with"),
        (
            ["load", "new", "lines.txt", "--bits", "136"],
            "give capacity and fp_rate (and hash_funcs), or bits and hash_funcs",
        ),
        (
            ["load", "new", "lines.txt", "--bits", "136", "--hash-funcs", "3", "--capacity", "5"],
            "give capacity and fp_rate (and hash",
        ),
        (["load", "new", "lines.txt", "--bits", "137", "--hash-funcs", "3"], "lines.txt: expected 18 bytes, got 17"),
        (
            ["load", "new", "lines.txt", "--bits", "130", "--hash-funcs", "3"],
            "lines.txt: bits at byte 80: padding bits are set",
        ),
        (
            ["load", "new", "lines.txt", "--bits", "136", "--hash-funcs", "3", "--partitioned"],
            "the bits of a partitioned filter must be",
        ),
        (
            ["load", "new", "lines.txt", "--bits", "136", "--hash-funcs", "3", "--key", "random"],
            "--key random makes a new key: give the",
        ),
        (
            ["load", "new", "made.bloom", "--capacity", "1000", "--fp-rate", "1e-6"],
            "made.bloom: expected 3596 bytes, got 3664: this is a filter file",
        ),
        (
            ["load", "made.bloom", "lines.txt", "--bits", "136", "--hash-funcs", "3"],
            "made.bloom exists: --force replaces it",
        ),
        (
            ["load", "lines.txt", "lines.txt", "--bits", "136", "--hash-funcs", "3", "--force"],
            "lines.txt exists and is not a filter",
        ),
        (
            ["load", "new", "lines.txt", "--bits", str(1 << 50), "--hash-funcs", "3"],
            "lines.txt: expected 140737488355328 bytes, got 17",
        ),
        (["load", "new", "/dev/zero", "--bits", str(1 << 50), "--hash-funcs", "3"], "a filter of "),
        (["add", "made.bloom", "lines.txt", "missing"], "missing: No such file or directory"),
        (["add", "made.bloom", "other.bloom"], "other.bloom: expected lines, but this is a filter"),
        (["add", "folder", "lines.txt"], "folder: Is a directory"),
        (["check", "made.bloom", "missing"], "missing: No such file or directory"),
        (["check", "made.bloom", "lines.txt", "--allow", "missing"], "missing: No such file or directory"),
        (["check", "made.bloom", "lines.txt", "--allow", "flipped.bloom"], "flipped.bloom: CRC at byte"),
        (["dedupe", "made.bloom", "missing"], "missing: No such file or directory"),
        (["dedupe", "lines.txt", "made.bloom"], "made.bloom: expected lines, but this is a filter"),
        (
            ["dedupe", "made.bloom", "lines.txt", "--capacity", "5"],
            "made.bloom exists and was made with --capacity 1000, not 5: omit",
        ),
        *[
            ([action, "empty", "lines.txt"], "empty: this is not a filter file: it is empty")
            for action in ("add", "check", "info")
        ],
        *[
            ([action, "lines.txt", "lines.txt"], "lines.txt: this is not a filter file: `spvfilter bloom create`")
            for action in ("add", "check", "info")
        ],
        *[
            ([action, "domains.txt", "lines.txt"], "domains.txt: this is not a filter file: `spvfilter bloom create`")
            for action in ("add", "check", "info")
        ],
        *[
            ([action, "start.bloom", "lines.txt"], "start.bloom: header at byte 0: truncated")
            for action in ("add", "check", "info")
        ],
        *[
            ([action, "cut.bloom", "lines.txt"], "cut.bloom: file at byte ")
            for action in ("add", "check", "dedupe", "info")
        ],
        *[
            ([action, "long.bloom", "lines.txt"], "long.bloom: file at byte ")
            for action in ("add", "check", "dedupe", "info")
        ],
        *[
            ([action, "flipped.bloom", "lines.txt"], "flipped.bloom: CRC at byte ")
            for action in ("add", "check", "dedupe", "info")
        ],
        *[
            ([action, "head.bloom", "lines.txt"], "head.bloom: header CRC at byte 60")
            for action in ("add", "check", "dedupe", "info")
        ],
        *[
            ([action, "int.bloom", "lines.txt"], "int.bloom does not hold lines: its keys are")
            for action in ("add", "check", "dedupe")
        ],
        *[
            ([action, "own.bloom", "lines.txt"], "own.bloom: the file was made with a custom")
            for action in ("add", "check", "info")
        ],
        (["merge", "made.bloom", "other.bloom"], "the following arguments are required: --output"),
        (
            ["merge", "made.bloom", "other.bloom", "--output", "new"],
            "made.bloom and other.bloom cannot be merged: the filters differ in cells",
        ),
        (
            ["merge", "made.bloom", "counting.bloom", "--output", "new"],
            "made.bloom and counting.bloom cannot be merged: only one of",
        ),
        (["merge", "made.bloom", "missing", "--output", "new"], "missing: No such file or directory"),
        (["merge", "made.bloom", "flipped.bloom", "--output", "made.bloom", "--force"], "flipped.bloom: CRC"),
        (["merge", "made.bloom", "made.bloom", "--output", "other.bloom"], "other.bloom exists: --force replaces it"),
        (["merge", "made.bloom", "made.bloom", "--output", "nowhere/new"], "nowhere/new: "),
        (["create", "new", *SHAPE, "--invert"], "unknown option --invert (see 'spvfilter bloom create --help')"),
        (["check", "made.bloom", "--capacity", "5"], "unknown option --capacity (see 'spvfilter bloom check --help')"),
        (["check", "made.bloom", "--force"], "unknown option --force (see 'spvfilter bloom check --help')"),
        (
            ["check", "made.bloom", "--hash-funcs", "5"],
            "unknown option --hash-funcs (see 'spvfilter bloom check --help')",
        ),
        (["dedupe", "--allow", "lines.txt"], "unknown option --allow (see 'spvfilter bloom dedupe --help')"),
        (["info", "made.bloom", "--null"], "unknown option --null (see 'spvfilter bloom info --help')"),
        (
            ["merge", "made.bloom", "--output", "new", "--key", "random"],
            "unknown option --key (see 'spvfilter bloom merge --help')",
        ),
    ],
)
def test_bad_input_is_one_line_and_changes_no_file(
    run: Any, tmp_path: Path, made: Path, lines: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = made.read_bytes()
    BloomFilter(50, 0.01).save("other.bloom")
    CountingBloomFilter(1_000, 1e-6).save("counting.bloom")
    ScalableBloomFilter(50, 0.01).save("scalable.bloom")
    BloomFilter(50, 0.01, hashing=SipHash(bytes([1] * 16))).save("keyed.bloom")
    BloomFilter(50, 0.01, encode="int64").save("int.bloom")
    BloomFilter(50, 0.01, hashing=CustomHash("own", lambda key, i: i)).save("own.bloom")
    Path("domains.txt").write_text("".join(f"host{number}.example\n" for number in range(10)))
    for name, damaged in {
        "start": raw[:20],
        "cut": raw[:-1],
        "long": raw + b"x",
        "flipped": raw[:-20] + b"\x55" + raw[-19:],
        "head": raw[:30] + b"\x55" + raw[31:],
    }.items():
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


WITHOUT_PRIVILEGE = (  # other users than root lack CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    "import ctypes, sys; from spvfilter.cli import main; libc = ctypes.CDLL(None, use_errno=True); head, sets ="
    " (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(); assert libc.capget(head, sets) == 0; sets[0] &="
    " ~6; sets[1] &= ~6; assert libc.capset(head, sets) == 0; sys.exit(main())"
)


@pytest.mark.slow
def test_missing_permissions_are_reported_before_reading(tmp_path: Path, made: Path, lines: Path) -> None:
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


def test_a_full_disk_leaves_the_filter_unchanged(made: Path, lines: Path) -> None:
    before = made.read_bytes()
    lines.write_bytes(b"delta\n")
    ran = process("bloom", "add", made, lines, code=FULL)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (
        2,
        f"spvfilter: {made}: cannot be written: File too large".encode(),
    )
    assert made.read_bytes() == before
    assert not [path for path in made.parent.iterdir() if path.name.startswith(".")]


FULL = (  # a limit on the size of files simulates a full disk
    "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    " resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); from spvfilter.cli import main; sys.exit(main())"
)


def test_a_secret_typed_as_an_action_is_not_repeated(run: Any) -> None:
    assert "correct horse" not in run("bloom", "correct horse battery").err
