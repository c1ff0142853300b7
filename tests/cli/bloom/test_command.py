"""`bloom` with filters in files: actions, options, separators. Bad input is in test_errors.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import SipHash
from support.commands.processes import LINES, command, environment, process


def opened(path: Path) -> BloomFilter:
    return BloomFilter.open(path)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("ended", [True, False])
def test_lines_may_have_any_end(run: Any, tmp_path: Path, end: bytes, ended: bool) -> None:
    source, path = tmp_path / "source", tmp_path / "f"
    source.write_bytes(end.join([b"alpha", b"", b"a\rb", b"\xff\x00"]) + (end if ended else b""))
    ran = run("bloom", "create", path, source, "--capacity", 100, "--fp-rate", "1e-9")
    assert (ran.code, ran.out, ran.err) == (0, "", "spvfilter: 4 lines, 4 of them new\n")
    assert opened(path).contains_many([b"alpha", b"", b"a\rb", b"\xff\x00", b"alpha\r", b"a"]) == bytes(
        [1, 1, 1, 1, 0, 0]
    )


def test_with_null_a_key_may_have_newlines(tmp_path: Path) -> None:
    path = tmp_path / "f"
    shape = ("--capacity", 100, "--fp-rate", "1e-9")
    assert process("bloom", "create", path, "-", *shape, "-0", stdin=b"a\nb\0c\r\0\0\xff").returncode == 0
    assert opened(path).contains_many([b"a\nb", b"c\r", b"", b"\xff", b"c", b"a"]) == bytes([1, 1, 1, 1, 0, 0])
    ran = process("bloom", "check", path, "--null", stdin=b"\xff\0a\nb\0x\0")
    assert (ran.returncode, ran.stdout) == (0, b"\xff\0a\nb\0")
    assert process("bloom", "dedupe", "-0", stdin=b"a\na\0b\0a\na\0b").stdout == b"a\na\0b\0"


def test_no_input_gives_no_output(made: Path) -> None:
    before = made.read_bytes()
    for argv in (["check", made], ["dedupe"], ["dedupe", made], ["add", made]):
        ran = process("bloom", *argv)
        assert (ran.returncode, ran.stdout) == (0, b"")
    assert made.read_bytes() == before


def test_create_accepts_capacity_rate_functions_and_key(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "f"
    secret = "0123456789abcdef" * 2
    assert run("bloom", "create", path, "--capacity", 5_000, "--fp-rate", 0.01, "--hash-funcs", 3, "--key", secret) == (
        0,
        "",
        "spvfilter: no lines in standard input: nothing was added\n",
    )
    expected = BloomFilter(5_000, 0.01, 3, hashing=SipHash(bytes.fromhex(secret)))
    assert path.read_bytes() == bytes(expected)


def test_create_reads_standard_input_like_add(tmp_path: Path) -> None:
    path, shape = tmp_path / "f", ("--capacity", 100, "--fp-rate", "1e-9")
    for stdin, said in (
        (b"a\nb\na\n", "3 lines, 2 of them new"),
        (b"", "no lines in standard input: nothing was added"),
    ):
        for action in (["create", path, "--force"], ["add", path], ["create", path, "-", "--force"]):
            ran = process("bloom", *action, *shape, stdin=stdin)
            assert (ran.returncode, ran.stdout) == (0, b"")
            again = "3 lines, 0 of them new" if stdin and action[0] == "add" else said
            assert ran.stderr.decode() == f"spvfilter: {again}\n"
        assert opened(path).contains_many([b"a", b"b", b"c"]) == (b"\1\1\0" if stdin else b"\0\0\0")


def test_empty_input_file_is_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    ran = run("bloom", "create", tmp_path / "f", tmp_path / "empty", "--capacity", 9, "--fp-rate", 0.1)
    assert ran == (0, "", f"spvfilter: no lines in {tmp_path / 'empty'}: nothing was added\n")


def test_random_keys_differ(run: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run("bloom", "create", tmp_path / name, "--capacity", 10, "--fp-rate", 0.01, "--key", "random").code == 0
    one, other = (opened(tmp_path / name) for name in ("a", "b"))
    assert isinstance(one.hashing, SipHash)
    assert one.hashing != other.hashing


def test_add_reads_standard_input_and_files_in_order(made: Path, lines: Path) -> None:
    ran = process("bloom", "add", made, lines, "-", stdin=b"delta\nepsilon\ndelta\n")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"spvfilter: 6 lines, 2 of them new\n")
    assert all(key in opened(made) for key in (b"alpha", b"gamma", b"delta", b"epsilon"))
    assert process("bloom", "add", made, stdin=b"zeta").stderr == b"spvfilter: 1 line, 1 of them new\n"


def test_a_changed_filter_keeps_its_mode_and_its_symbolic_link(
    run: Any, made: Path, tmp_path: Path, lines: Path
) -> None:
    made.chmod(0o644)
    link = tmp_path / "link"
    link.symlink_to(made)
    lines.write_bytes(b"delta\n")
    assert run("bloom", "add", link, lines).code == 0
    assert link.is_symlink()
    assert made.stat().st_mode & 0o777 == 0o644
    assert b"delta" in opened(made)


@pytest.mark.parametrize(("invert", "out"), [((), b"beta\ngamma\n"), (("--invert",), b"delta\n\n")])
def test_check_prints_lines_in_or_not_in_the_filter(made: Path, invert: tuple[str, ...], out: bytes) -> None:
    before = made.read_bytes()
    ran = process("bloom", "check", made, *invert, stdin=b"beta\ndelta\n\ngamma\r\n")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, out, b"spvfilter: 4 lines, 2 of them printed\n")
    assert made.read_bytes() == before


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["lines", "filter", "counting", "text filter", "fifo"])
def test_allowed_lines_are_never_in_the_filter(made: Path, tmp_path: Path, kind: str) -> None:
    allow = tmp_path / "allow"
    match kind:
        case "lines" | "fifo":
            allow.write_bytes(b"beta\r\nother")
        case "filter":
            BloomFilter.build([b"beta", b"other"], 10, 1e-9).save(allow)
        case "counting":
            guard = CountingBloomFilter(10, 1e-9)
            guard.add(b"beta")
            guard.save(allow)
        case "text filter":
            BloomFilter.build(["beta"], 10, 1e-9, encode="utf-8").save(allow)
    for invert, out in (((), "alpha"), (("--invert",), "beta delta")):
        argv = command("bloom", "check", made, "--allow", "/dev/fd/9" if kind == "fifo" else allow, *invert)
        shell = f'cat {allow} | "$@" 9<&0 < {tmp_path / "asked"}' if kind == "fifo" else f'"$@" < {tmp_path / "asked"}'
        (tmp_path / "asked").write_bytes(b"alpha\nbeta\ndelta\n")
        ran = subprocess.run(["sh", "-c", shell, "sh", *argv], capture_output=True, env=environment(), timeout=60)
        assert (ran.returncode, ran.stdout.decode().split()) == (0, out.split())


def test_dedupe_prints_each_line_once(made: Path, tmp_path: Path) -> None:
    text = b"one\r\n\none\ntwo\n\nthree"
    assert process("bloom", "dedupe", stdin=text).stdout == b"one\n\ntwo\nthree\n"
    source = tmp_path / "source"
    source.write_bytes(text + b"\nalpha\n")
    assert process("bloom", "dedupe", source, source).stdout == b"one\n\ntwo\nthree\nalpha\n"
    ran = process("bloom", "dedupe", made, source)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"one\n\ntwo\nthree\n", b"")
    ran = process("bloom", "dedupe", made, stdin=b"two\nfour\nbeta\n")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"four\n", b"")


def test_info_describes_filters(transcript_of: Any, made: Path) -> None:
    full = BloomFilter(bits=8, hash_funcs=1)
    memoryview(full.buffer).cast("B")[:] = b"\xff"
    full.save("full.bloom")
    transcript_of(0, f"bloom info {made.name} full.bloom --format table")


def test_info_in_a_pipe_writes_one_json_object_a_filter(run: Any, made: Path) -> None:
    filter = opened(made)
    ran = run("bloom", "info", made, made)
    first, second = map(json.loads, ran.out.splitlines())
    assert (ran.code, ran.err, first) == (0, "", second)
    assert first == {
        "filter": str(made),
        "kind": "Bloom filter",
        "hash_family": "fast",
        "bits": filter.bits,
        "bytes": -(-filter.bits // 8),
        "hash_funcs": str(filter.hash_funcs),
        "capacity": 1_000,
        "slices": None,
        "fp_rate_at_capacity": 1e-6,
        "fill": filter.fill,
        "estimated_lines": pytest.approx(3, abs=0.01),
        "fp_rate": filter.current_fp_rate,
    }


def test_merge_may_write_to_one_of_its_inputs(run: Any, made: Path, tmp_path: Path) -> None:
    other, output = tmp_path / "other", tmp_path / "output"
    BloomFilter.build([b"delta"], 1_000, 1e-6).save(other)
    assert run("bloom", "merge", made, other, "--output", output) == (0, "", "")
    assert opened(output) == opened(made) | opened(other)
    assert run("bloom", "merge", other, made, "--output", made, "--force").code == 0
    assert opened(made) == opened(output)


def test_a_filter_of_text_from_python_accepts_lines(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "f"
    BloomFilter.build(["grün"], 10, 1e-9, encode="utf-8").save(path)
    assert process("bloom", "check", path, stdin="rot\ngrün\n".encode()).stdout == "grün\n".encode()
    assert process("bloom", "dedupe", path, stdin="blau\ngrün\n".encode()).stdout == b"blau\n"
    assert "blau" in BloomFilter.open(path, encode="utf-8")
    ran = process("bloom", "add", path, stdin=b"\xff\xfe\n")
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr == f"spvfilter: the keys of {path} are text, but this line is not UTF-8: b'\\xff\\xfe'\n".encode()


def test_counting_filters_support_every_action_except_dedupe(run: Any, tmp_path: Path, lines: Path) -> None:
    path = tmp_path / "counting"
    CountingBloomFilter(100, 1e-6).save(path)
    assert run("bloom", "add", path, lines, lines).err == "spvfilter: 6 lines, 3 of them new\n"
    assert CountingBloomFilter.open(path).count(b"beta") == 2
    assert run("bloom", "check", path, lines).out.encode() == LINES
    assert "counting Bloom filter" in run("bloom", "info", path).out
    assert run("bloom", "merge", path, path, "--output", tmp_path / "sum").code == 0
    assert CountingBloomFilter.open(tmp_path / "sum").count(b"beta") == 4
    before = path.read_bytes()
    ran = run("bloom", "dedupe", path, lines)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"spvfilter: {path} is a counting filter, which would count repeated lines: use a plain filter\n"
    assert path.read_bytes() == before


def test_lines_above_the_capacity_cause_a_warning(run: Any, tmp_path: Path) -> None:
    path, source = tmp_path / "f", tmp_path / "source"
    source.write_text("".join(f"{number}\n" for number in range(400)))
    past = f"warning: {path} was made for 100 lines and holds about "
    for ran in (
        run("bloom", "create", path, source, "--capacity", 100, "--fp-rate", 0.001, "--on-full", "warn"),
        run("bloom", "add", path, source, "--on-full", "warn"),
        run("bloom", "info", path),
        run("bloom", "dedupe", path, source, "--on-full", "warn"),
        run("bloom", "merge", path, "--output", path, "--force"),
    ):
        assert ran.code == 0
        assert past in ran.err
    ran = run("bloom", "dedupe", source, "--capacity", 100, "--fp-rate", 0.001, "--hash-funcs", 5, "--on-full", "warn")
    early, late = ran.err.splitlines()
    assert early.startswith("spvfilter: warning: a filter made for 100 keys at 0.001 contains 100, so its rate is ")
    assert late.startswith("spvfilter: warning: the filter in memory was made for 100 lines and holds about ")


def test_a_full_filter_refuses_lines_with_a_message(run: Any, tmp_path: Path) -> None:
    path, source = tmp_path / "f", tmp_path / "source"
    source.write_text("".join(f"{number}\n" for number in range(1, 5_001)))
    assert run("bloom", "create", path, "--capacity", 100, "--fp-rate", 0.01).code == 0
    empty = path.read_bytes()
    full = f"spvfilter: {path} is full: it was made for 100 lines and contains "
    ran = run("bloom", "add", path, source)
    assert (ran.code, ran.out, ran.err.startswith(full)) == (2, "", True)
    assert path.read_bytes() == empty  # no line of a refused file is kept
    ran = run("bloom", "dedupe", path, source)
    assert (ran.code, ran.err.startswith(full)) == (2, True)
    printed = ran.out.splitlines()
    assert 100 <= len(printed) < 130
    assert printed == sorted(printed, key=int)
    kept = opened(path)
    assert all(line.encode() in kept for line in printed)
    source.write_text("\n".join(printed))
    ran = run("bloom", "dedupe", path, source)  # known lines need no room
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    ran = run("bloom", "create", tmp_path / "g", source, source, "--capacity", 10, "--fp-rate", 0.01)
    assert ran.code == 2
    assert not (tmp_path / "g").exists()


def test_a_scalable_filter_accepts_any_number_of_lines(run: Any, tmp_path: Path) -> None:
    path, source = tmp_path / "f", tmp_path / "source"
    source.write_text("".join(f"{number}\n" for number in range(5_000)))
    assert run("bloom", "create", path, source, "--capacity", 100, "--fp-rate", 1e-6, "--scalable").code == 0
    assert run("bloom", "check", path, source).out == source.read_text()
    assert run("bloom", "dedupe", path, source) == (0, "", "")
    source.write_text("".join(f"{number}\n" for number in range(4_000, 9_000)))
    assert run("bloom", "dedupe", path, source).out.split() == [str(number) for number in range(5_000, 9_000)]
    assert run("bloom", "add", path, source).err == "spvfilter: 5,000 lines, 0 of them new\n"
    ran = run("bloom", "info", path, "--format", "table")
    assert ("scalable Bloom filter\n" in ran.out, "grows, 7 slices\n" in ran.out, ran.err) == (True, True, "")
    assert run("bloom", "dedupe", source, "--capacity", 10).out == source.read_text()
    for argv, said in (
        (
            ["merge", path, path, "--output", tmp_path / "both"],
            "at least one is a scalable filter: add the lines of both to one filter",
        ),
        (
            ["create", tmp_path / "g", "--capacity", 9, "--fp-rate", 0.1, "--scalable", "--hash-funcs", 3],
            "--scalable chooses the number of",
        ),
    ):
        ran = run("bloom", *argv)
        assert (ran.code, said in ran.err) == (2, True)


def test_reaching_the_capacity_causes_no_warning(run: Any, tmp_path: Path) -> None:
    path, source = tmp_path / "f", tmp_path / "source"
    source.write_text("".join(f"{number}\n" for number in range(100)))
    assert (
        run("bloom", "create", path, source, "--capacity", 100, "--fp-rate", 1e-6).err
        == "spvfilter: 100 lines, 100 of them new\n"
    )
    assert run("bloom", "info", path).err == ""
    assert run("bloom", "dedupe", source, "--capacity", 100).err == ""
