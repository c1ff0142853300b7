"""`bloom` live: dedupe as a stream in constant memory, interrupts, broken pipes, and progress on a terminal."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from spvfilter.bloom.filter import BloomFilter
from support.commands.processes import WITH_SIGINT, WITHOUT_RICH, command, environment, on_terminal, process

COUNT = 100_000


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """An empty filter with a rate so low that no line is a false positive."""
    path = tmp_path / "kept.bloom"
    BloomFilter(COUNT, 1e-12).save(path)
    return path


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(COUNT)))
    return path


@pytest.fixture
def few(tmp_path: Path) -> Path:
    path = tmp_path / "few"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(20_000)))
    return path


def started(*argv: object, code: str = "") -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command("bloom", *argv, code=code), env=environment(), stdin=pipe, stdout=pipe, stderr=pipe)


def test_a_line_is_printed_immediately() -> None:
    with started("dedupe") as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for sent, back in [
            (b"a\n", b"a\n"),
            (b"a\nb\n", b"b\n"),
            (b"half", b""),
            (b" a line\n", b"half a line\n"),
            (b"end", b""),
        ]:
            child.stdin.write(sent)
            child.stdin.flush()
            if back:
                assert child.stdout.readline() == back
        child.stdin.close()
        assert child.stdout.read() == b"end\n"
        assert child.wait(timeout=60) == 0


@pytest.mark.slow
def test_dedupe_needs_the_same_memory_for_many_lines() -> None:
    code = (
        "import pathlib, re, sys; from spvfilter.cli import main; code = main(); print(*re.findall(r'VmHWM:\\s*(\\d+)"
        " kB', pathlib.Path('/proc/self/status').read_text()), file=sys.stderr); sys.exit(code)"
    )
    peaks = []  # kB
    for count in (20_000, 200_000):
        lines = b"".join(b"%0100d\n" % number for number in range(count))
        ran = process("bloom", "dedupe", "--capacity", 200_000, "--fp-rate", 1e-9, code=code, stdin=lines)
        assert (ran.returncode, ran.stdout) == (0, lines)
        peaks.append(int(ran.stderr))
    assert peaks[1] - peaks[0] < 4_000  # the lines are 18 MB more


def test_an_interrupted_dedupe_remembers_exactly_the_printed_lines(kept: Path, numbers: Path) -> None:
    with started("dedupe", kept, numbers, code=WITH_SIGINT) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        first = child.stdout.readline()
        child.send_signal(signal.SIGINT)
        printed = first + child.stdout.read()
        assert child.stderr.read() == b"spvfilter: interrupted\n"
        assert child.wait(timeout=60) == 130
    ran = process("bloom", "dedupe", kept, numbers)
    assert ran.returncode == 0
    assert 0 < printed.count(b"\n") < COUNT
    assert printed + ran.stdout == numbers.read_bytes()


@pytest.mark.few(1)
@pytest.mark.parametrize(("times", "out"), [(1, b"a\nb\n"), (2, b"")], ids=["once", "twice"])
def test_only_the_first_interrupt_waits_for_the_batch(kept: Path, times: int, out: bytes) -> None:
    interrupted = (
        "import os; import spvfilter.cli.bloom.storage as module; add = module.FileStorage.add_many;"
        " module.FileStorage.add_many = lambda store, lines: ([os.kill(os.getpid(), signal.SIGINT) for _ in"
        f" range({times})], add(store, lines))[1]"
    )
    ran = process(
        "bloom", "dedupe", kept, stdin=b"a\nb\n", code=WITH_SIGINT.replace("sys.exit", f"{interrupted}; sys.exit")
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, out, b"spvfilter: interrupted\n")
    assert (b"a" in BloomFilter.open(kept)) is bool(out)


def test_an_ignored_interrupt_stays_ignored(kept: Path) -> None:
    code = WITH_SIGINT.replace("signal.default_int_handler", "signal.SIG_IGN")
    with started("dedupe", kept, code=code) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for line in (b"a\n", b"b\n"):
            child.stdin.write(line)
            child.stdin.flush()
            assert child.stdout.readline() == line
            child.send_signal(signal.SIGINT)
        child.stdin.close()
        assert child.wait(timeout=60) == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("action", ["add", "create"])
def test_an_interrupted_add_or_create_changes_no_file(kept: Path, action: str) -> None:
    before = kept.read_bytes()
    shape = ("--capacity", 5, "--fp-rate", 0.1, "--force") if action == "create" else ()
    tell = (
        "import spvfilter.cli.bloom.storage as module; update = module.FileStorage.update; "
        "module.FileStorage.update = lambda store, lines: (update(store, lines), print('added', flush=True))[0]"
    )
    with started(action, kept, "-", *shape, code=WITH_SIGINT.replace("sys.exit", f"{tell}; sys.exit")) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"a\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"added\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 130
    assert kept.read_bytes() == before
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_lines_printed_before_a_broken_pipe_are_remembered(kept: Path, numbers: Path) -> None:
    with started("dedupe", kept, numbers) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        read = [child.stdout.readline() for _ in range(1_000)]
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(timeout=60) == 141
    remembered = BloomFilter.open(kept)
    assert all(line[:-1] in remembered for line in read)
    assert len(remembered) < COUNT


def test_a_full_output_disk_leaves_the_filter_usable(kept: Path, numbers: Path) -> None:
    ran = process("bloom", "dedupe", kept, numbers, shell="> /dev/full")
    assert (ran.returncode, ran.stderr) == (2, b"spvfilter: cannot read or write: No space left on device\n")
    assert process("bloom", "info", kept).returncode == 0


@pytest.mark.slow
def test_closed_streams_cause_one_line(kept: Path) -> None:
    before = kept.read_bytes()
    for argv in (["add", kept], ["check", kept], ["dedupe"], ["dedupe", kept]):
        ran = process("bloom", *argv, shell="<&-")
        assert (ran.returncode, ran.stdout, ran.stderr) == (2, b"", b"spvfilter: standard input is closed\n")
    assert kept.read_bytes() == before


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "code", ["import sys; from spvfilter.cli import main; sys.exit(main())", WITHOUT_RICH], ids=["rich", "plain"]
)
@pytest.mark.parametrize("action", ["add", "check", "dedupe"])
def test_a_terminal_shows_progress_through_files(kept: Path, few: Path, tmp_path: Path, action: str, code: str) -> None:
    out = tmp_path / "out"
    if action != "add":  # a command that prints lines shows progress only if its output is redirected
        code = f"import os; os.dup2(os.open({str(out)!r}, os.O_WRONLY | os.O_CREAT), 1); {code}"
    ended, screen = on_terminal("bloom", action, kept, few, code=code)
    assert ended == 0
    assert "100%" in screen
    assert " kB" in screen
    if action == "dedupe":
        assert out.read_bytes() == few.read_bytes()


def test_no_progress_is_shown_without_a_terminal(kept: Path, few: Path) -> None:
    ended, screen = on_terminal("bloom", "dedupe", kept, few)
    assert (ended, screen) == (0, few.read_text())
    assert process("bloom", "add", kept, few).stderr == b"spvfilter: 20,000 lines, 0 of them new\n"
