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

SHAPE = "--capacity 10 --fp-rate 0.01"


def test_bad_input_is_one_line_and_changes_no_file(
    refused: Any, transcript_of: Any, tmp_path: Path, made: Path, lines: Path
) -> None:
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
    refused(f"""
        bloom
        bloom frobnicate
        bloom add
        bloom check
        bloom info
        bloom create {SHAPE}
        bloom merge --output new
        bloom create new
        bloom create new --capacity 10
        bloom create new --capacity 0 --fp-rate 0.01
        bloom create new --capacity -5 --fp-rate 0.01
        bloom create new --capacity 10 --fp-rate nan
        bloom create new --capacity 10 --fp-rate 1
        bloom create new {SHAPE} --hash-funcs 0
        bloom create new {SHAPE} --key 00
        bloom create new {SHAPE} --key zz
        bloom create new --capacity 281474976710656 --fp-rate 0.01
        bloom create new --capacity 281474976710656 --fp-rate 0.01 --hash-funcs 1
        bloom dedupe lines.txt --capacity 281474976710656
        bloom create new missing {SHAPE}
        bloom create new . {SHAPE}
        bloom create new made.bloom {SHAPE}
        bloom create made.bloom {SHAPE}
        bloom create lines.txt {SHAPE} --force
        bloom create folder {SHAPE}
        bloom create folder {SHAPE} --force
        bloom create nowhere/new {SHAPE}
        bloom create lines.txt/new {SHAPE}
        bloom create /proc/new {SHAPE}
        bloom create made.bloom missing {SHAPE} --force
        bloom add missing lines.txt
        bloom add missing lines.txt --capacity 9
        bloom add missing nowhere {SHAPE}
        bloom add nowhere/new lines.txt {SHAPE}
        bloom add lines.txt lines.txt {SHAPE}
        bloom add made.bloom lines.txt --fp-rate 0.1
        bloom add made.bloom lines.txt --hash-funcs 3
        bloom add made.bloom lines.txt --key random
        bloom add keyed.bloom lines.txt --key 00000000000000000000000000000000
        bloom add made.bloom lines.txt --counting
        bloom add counting.bloom lines.txt --scalable
        bloom add new lines.txt {SHAPE} --counting --scalable
        bloom add new lines.txt {SHAPE} --scalable --hash-funcs 3
        bloom dedupe missing
        bloom dedupe missing nowhere --capacity 5
        bloom dedupe nowhere/new lines.txt --capacity 5
        bloom dedupe counting.bloom lines.txt
        bloom remove missing lines.txt
        bloom remove counting.bloom missing
        bloom remove made.bloom lines.txt
        bloom remove scalable.bloom lines.txt
        bloom remove counting.bloom lines.txt --counting
        bloom dump missing
        bloom dump flipped.bloom --output new
        bloom dump scalable.bloom --output new
        bloom dump made.bloom --output lines.txt
        bloom dump made.bloom --output folder --force
        bloom dump made.bloom --output nowhere/new
        bloom load new missing {SHAPE}
        bloom load new folder {SHAPE}
        bloom load new lines.txt {SHAPE}
        bloom load new lines.txt
        bloom load new lines.txt --capacity 5
        bloom load new lines.txt --bits 136
        bloom load new lines.txt --bits 136 --hash-funcs 3 --capacity 5
        bloom load new lines.txt --bits 137 --hash-funcs 3
        bloom load new lines.txt --bits 130 --hash-funcs 3
        bloom load new lines.txt --bits 136 --hash-funcs 3 --partitioned
        bloom load new lines.txt --bits 136 --hash-funcs 3 --key random
        bloom load new made.bloom --capacity 1000 --fp-rate 1e-6
        bloom load made.bloom lines.txt --bits 136 --hash-funcs 3
        bloom load lines.txt lines.txt --bits 136 --hash-funcs 3 --force
        bloom load new lines.txt --bits 1125899906842624 --hash-funcs 3
        bloom load new /dev/zero --bits 1125899906842624 --hash-funcs 3
        bloom add made.bloom lines.txt missing
        bloom add made.bloom other.bloom
        bloom add folder lines.txt
        bloom check made.bloom missing
        bloom check made.bloom lines.txt --allow missing
        bloom check made.bloom lines.txt --allow flipped.bloom
        bloom dedupe made.bloom missing
        bloom dedupe made.bloom lines.txt --capacity 5
        bloom add empty lines.txt
        bloom check empty lines.txt
        bloom info empty lines.txt
        bloom add lines.txt lines.txt
        bloom check lines.txt lines.txt
        bloom info lines.txt lines.txt
        bloom add domains.txt lines.txt
        bloom check domains.txt lines.txt
        bloom info domains.txt lines.txt
        bloom add start.bloom lines.txt
        bloom check start.bloom lines.txt
        bloom info start.bloom lines.txt
        bloom add cut.bloom lines.txt
        bloom check cut.bloom lines.txt
        bloom dedupe cut.bloom lines.txt
        bloom info cut.bloom lines.txt
        bloom add long.bloom lines.txt
        bloom check long.bloom lines.txt
        bloom dedupe long.bloom lines.txt
        bloom info long.bloom lines.txt
        bloom add flipped.bloom lines.txt
        bloom check flipped.bloom lines.txt
        bloom dedupe flipped.bloom lines.txt
        bloom info flipped.bloom lines.txt
        bloom add head.bloom lines.txt
        bloom check head.bloom lines.txt
        bloom dedupe head.bloom lines.txt
        bloom info head.bloom lines.txt
        bloom add int.bloom lines.txt
        bloom check int.bloom lines.txt
        bloom dedupe int.bloom lines.txt
        bloom add own.bloom lines.txt
        bloom check own.bloom lines.txt
        bloom info own.bloom lines.txt
        bloom merge made.bloom other.bloom
        bloom merge made.bloom other.bloom --output new
        bloom merge made.bloom counting.bloom --output new
        bloom merge made.bloom missing --output new
        bloom merge made.bloom flipped.bloom --output made.bloom --force
        bloom merge made.bloom made.bloom --output other.bloom
        bloom merge made.bloom made.bloom --output nowhere/new
        bloom create new {SHAPE} --invert
        bloom check made.bloom --capacity 5
        bloom check made.bloom --force
        bloom check made.bloom --hash-funcs 5
        bloom dedupe --allow lines.txt
        bloom info made.bloom --null
        bloom merge made.bloom --output new --key random
    """)
    (ran,) = transcript_of(2, "bloom dedupe lines.txt made.bloom")
    assert (ran.out.encode(), ran.err.count("\n")) == (LINES, 1)
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
        shape = SHAPE.split()
        for argv in (["create", tmp_path / "new", lines, *shape], ["add", made, lines], ["dedupe", made, lines]):
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
