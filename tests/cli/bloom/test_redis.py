"""`bloom` with filters in a real Redis: the same actions, forms of the URL, and failures of the server."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom.filter import BloomFilter
from spvfilter.errors import remedy
from support.commands.processes import WITH_SIGINT, WITH_UNNOTICED_SIGINT, command, environment, process
from support.peers.redisserver import RedisServer, running_redis

WITHOUT_REDIS = "import sys; sys.modules['redis'] = None; from spvfilter.cli import main; sys.exit(main())"
SHAPE = ("--capacity", 1_000, "--fp-rate", 1e-9)

needs_redis = pytest.mark.redis


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    folder = Path(tempfile.mkdtemp(prefix="redis-"))  # the path of a unix socket must be short
    try:
        with running_redis(folder) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def redis(server: RedisServer, run: Any) -> Any:
    """Run an action on an empty server."""
    flushed = subprocess.run(
        ["redis-cli", "-s", server.url.removeprefix("unix://"), "flushall"], capture_output=True, check=True
    )
    assert flushed.stdout == b"OK\n"
    return lambda *argv: run("bloom", *argv, "--redis", server.url)


def text(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@needs_redis
def test_every_action_works_as_with_files(redis: Any, server: RedisServer, tmp_path: Path) -> None:
    source = text(tmp_path, "source", "alpha", "beta", "alpha", "")
    assert redis("create", "one", source, *SHAPE) == (0, "", "spvfilter: 4 lines, 3 of them new\n")
    assert redis("add", "one", text(tmp_path, "more", "gamma", "beta")) == (
        0,
        "",
        "spvfilter: 2 lines, 1 of them new\n",
    )
    asked = text(tmp_path, "asked", "gamma", "delta", "alpha")
    allow = text(tmp_path, "allow", "alpha")
    assert redis("check", "one", asked).out == "gamma\nalpha\n"
    assert redis("check", "one", asked, "--allow", allow).out == "gamma\n"
    assert redis("check", "one", asked, "--invert").out == "delta\n"
    assert redis("dedupe", "one", asked, asked) == (0, "delta\n", "")
    assert redis("create", "two", text(tmp_path, "other", "omega"), *SHAPE).code == 0
    assert redis("merge", "one", "two", "--output", "both") == (0, "", "")
    info = redis("info", "both", "--format", "table")
    assert (info.code, info.err) == (0, "")
    assert "Bloom filter in Redis" in info.out
    assert "estimated lines   6\n" in info.out
    ran = process("bloom", "dedupe", "both", "-0", "--redis", server.url, stdin=b"omega\0new\nline\0alpha\0")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"new\nline\0", b"")


@needs_redis
def test_filters_are_created_and_copied_as_raw_bits(redis: Any, tmp_path: Path) -> None:
    source = text(tmp_path, "source", "alpha", "beta")
    told = "spvfilter: one did not exist: made a filter for 1,000 lines\n"
    assert redis("add", "one", source, *SHAPE) == (0, "", told + "spvfilter: 2 lines, 2 of them new\n")
    assert redis("add", "one", source, *SHAPE) == (0, "", "spvfilter: 2 lines, 0 of them new\n")
    assert redis("dedupe", "seen", source, *SHAPE) == (
        0,
        "alpha\nbeta\n",
        told.replace("one did", "seen did").replace("filter for", "scalable filter that begins with"),
    )
    assert redis("dedupe", "seen", source, *SHAPE) == (0, "", "")
    raw = tmp_path / "raw"
    assert redis("dump", "one", "--output", raw).code == 0
    assert redis("load", "two", raw, *SHAPE) == (0, "", "")
    assert redis("check", "two", source).out == "alpha\nbeta\n"
    assert redis("load", "two", raw, *SHAPE).err == "spvfilter: a filter at 'two' already exists: --force replaces it\n"
    raw.write_bytes(bytes(4 * len(raw.read_bytes())))
    assert (
        redis("load", "three", raw, *SHAPE, "--counting").err
        == "spvfilter: a counting filter needs a file: filters in Redis have no counters\n"
    )


@needs_redis
def test_a_scalable_filter_accepts_any_number_of_lines(redis: Any, tmp_path: Path) -> None:
    lines = [*map(str, range(500))]
    half, whole = text(tmp_path, "half", *lines[:250]), text(tmp_path, "whole", *lines)
    shape = ("--capacity", 20, "--fp-rate", 1e-6)
    assert redis("create", "g", half, *shape, "--scalable") == (0, "", "spvfilter: 250 lines, 250 of them new\n")
    assert redis("add", "g", half, "--scalable", "--capacity", 20).err == "spvfilter: 250 lines, 0 of them new\n"
    assert redis("dedupe", "g", whole) == (0, "".join(f"{line}\n" for line in lines[250:]), "")
    assert redis("check", "g", whole).out.split() == lines
    info = redis("info", "g", "--format", "table")
    assert (info.code, info.err) == (0, "")
    for said in ("scalable Bloom filter in Redis", "grows, 5 slices", "16 to 19", "estimated lines   50"):
        assert said in info.out
    assert redis("merge", "g", "--output", "copy") == (0, "", "")
    assert redis("check", "copy", whole).out.split() == lines
    refused: list[tuple[list[object], str]] = [
        (
            ["merge", "g", "copy", "--output", "both"],
            "g and copy cannot be merged: at least one is a scalable filter",
        ),
        (["dump", "g"], "g is a scalable filter, which consists of several filters: it has no raw form"),
        (
            ["add", "g", half, "--capacity", 21],
            "g exists and was made with --capacity 20, not 21: omit --capacity",
        ),
        (["add", "g", half, "--counting"], "g is a scalable Bloom filter: omit --counting"),
        (["create", "g", *shape], "a filter at 'g' already exists: --force replaces it"),
        (["create", "h", *shape, "--scalable", "--hash-funcs", 3], "--scalable chooses the number of hash functions"),
        (["remove", "g", half], "g is in Redis, where filters have no counters"),
    ]
    for argv, said in refused:
        ran = redis(*argv)
        assert (ran.code, ran.out, said in ran.err) == (2, "", True), ran
    assert redis("create", "g", *shape, "--force").code == 0
    assert redis("check", "g", whole).out == ""


@pytest.mark.slow
@needs_redis
def test_two_processes_share_one_filter(redis: Any, server: RedisServer) -> None:
    assert redis("create", "seen", *SHAPE).code == 0
    lines = b"".join(b"%d\n" % number for number in range(1_000))
    argv = command("bloom", "dedupe", "seen", "--redis", server.url)
    both = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) for _ in range(2)]
    for child in both:
        assert child.stdin is not None
        child.stdin.write(lines)
        child.stdin.flush()
    printed = b"".join(child.communicate(timeout=60)[0] for child in both)
    assert sorted(printed.split()) == sorted(lines.split())


@needs_redis
def test_lines_above_the_capacity_cause_a_warning(redis: Any, tmp_path: Path) -> None:
    source = text(tmp_path, "source", *map(str, range(25)))
    shape = ("--capacity", 10, "--fp-rate", 0.001)
    ran = redis("create", "small", source, *shape, "--on-full", "warn")
    assert (ran.code, "warning: small was made for 10 lines and holds about " in ran.err) == (0, True)
    ran = redis("create", "other", source, *shape)
    assert (ran.code, ran.out) == (2, "")
    assert re.search(
        r"other is full: it was made for 10 lines and contains 1\d, and its false-positive rate is 0.00\d+: make",
        ran.err,
    )
    redis("create", "empty", *shape)
    ran = redis("dedupe", "empty", source)
    assert ran.code == 2
    assert ran.out.splitlines() == list(map(str, range(len(ran.out.splitlines()))))
    assert 10 <= len(ran.out.splitlines()) < 25
    again = redis("dedupe", "empty", source)
    assert (again.code, again.out) == (2, "")


@pytest.mark.few(1)
@needs_redis
@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["dedupe"], "bloom dedupe --redis needs the key of a filter"),
        (
            ["dedupe", "there", "--capacity", "5"],
            "there exists and was made with --capacity 1000, not 5: omit --capacity",
        ),
        (["add", "absent", "--capacity", "5"], "no filter at 'absent'"),
        (["add", "there", "--scalable"], "there is a Bloom filter: omit --scalable"),
        (["create", "new", *SHAPE, "--counting"], "--counting needs a filter in a file"),
        (["remove", "there"], "there is in Redis, where filters have no counters"),
        (["create", "there", *SHAPE], "a filter at 'there' already exists: --force replaces it"),
        (["create", "there", "missing", *SHAPE, "--force"], "missing: No such file or directory"),
        (["create", "there", "--capacity", 1 << 48, "--fp-rate", 1e-9, "--force"], ""),
        (["create", "list", *SHAPE, "--force"], "'{list}:header' is not a string but a list"),
        (["create", "foreign", *SHAPE, "--force"], "foreign: header at byte 0: not a filter"),
        *[
            ([action, "absent"], "no filter at 'absent': it was never created")
            for action in ("add", "check", "dedupe", "info")
        ],
        *[([action, "list"], "'{list}:header'") for action in ("add", "check", "dedupe", "info")],
        *[
            ([action, "foreign"], "foreign: header at byte 0: not a filter")
            for action in ("add", "check", "dedupe", "info")
        ],
        (["merge", "there", "absent", "--output", "there", "--force"], "no filter at 'absent'"),
        (
            ["merge", "there", "smaller", "--output", "there", "--force"],
            "there and smaller cannot be merged: the filters differ in cells",
        ),
        (
            ["merge", "there", "there", "--output", "smaller"],
            "a filter at 'smaller' already exists: --force replaces it",
        ),
    ],
)
def test_bad_input_is_one_line_and_changes_no_key(
    redis: Any, server: RedisServer, tmp_path: Path, argv: list[object], said: str
) -> None:
    def client(*words: str) -> bytes:
        path = server.url.removeprefix("unix://")
        return subprocess.run(["redis-cli", "-s", path, *words], capture_output=True, check=True).stdout

    redis("create", "there", text(tmp_path, "source", "alpha"), *SHAPE)
    redis("create", "smaller", "--capacity", 10, "--fp-rate", 0.1)
    client("rpush", "{list}:header", "x")
    client("set", "{foreign}:header", "x")
    keys = sorted(client("--raw", "keys", "*").decode().split())
    before = [client("dump", key) for key in keys]
    ran = redis(*argv, *([tmp_path / "source"] if argv[0] in ("add", "check", "dedupe") and len(argv) > 1 else []))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err
    assert sorted(client("--raw", "keys", "*").decode().split()) == keys
    assert [client("dump", key) for key in keys] == before


@needs_redis
def test_force_replaces_and_merge_may_write_an_input(redis: Any, tmp_path: Path) -> None:
    redis("create", "one", text(tmp_path, "a", "alpha"), *SHAPE)
    redis("create", "two", text(tmp_path, "b", "beta"), *SHAPE)
    both = text(tmp_path, "both", "alpha", "beta")
    assert redis("merge", "one", "two", "--output", "one", "--force") == (0, "", "")
    assert redis("check", "one", both).out == "alpha\nbeta\n"
    assert redis("create", "one", "--capacity", 5, "--fp-rate", 0.1, "--force").code == 0
    assert redis("check", "one", both).out == ""


@needs_redis
def test_a_filter_of_text_from_python_accepts_lines(redis: Any, server: RedisServer, tmp_path: Path) -> None:
    make = (
        "import asyncio, sys\nfrom spvfilter.bloom.redis.filter import RedisBloomFilter\nfrom"
        " spvfilter.bloom.redis.client import connect\nasync def make():\n    async with connect(sys.argv[1]) as"
        " client:\n        await (await RedisBloomFilter.create(client, 'text', 10, 1e-9,"
        " encode='utf-8')).add('grün')\nasyncio.run(make())"
    )
    subprocess.run(command(server.url, code=make), env=environment(), check=True, timeout=60)
    assert redis("check", "text", text(tmp_path, "a", "rot", "grün")).out == "grün\n"
    (tmp_path / "b").write_bytes(b"\xff\n")
    assert (
        redis("add", "text", tmp_path / "b").err
        == "spvfilter: the keys of text are text, but this line is not UTF-8: b'\\xff'\n"
    )


@needs_redis
def test_a_url_may_have_port_database_and_password(tmp_path: Path) -> None:
    with running_redis(tmp_path, tcp=True) as server:
        subprocess.run(
            ["redis-cli", "-p", str(server.port), "config", "set", "requirepass", "sesame"],
            capture_output=True,
            check=True,
        )
        good = f"redis://:sesame@127.0.0.1:{server.port}"
        assert process("bloom", "create", "f", *SHAPE, "--redis", f"{good}/3").returncode == 0
        for url, code, said in [
            (f"{good}/3", 0, b""),
            (f"{good}/4", 2, b"no filter at 'f'"),
            (f"{good}/999", 2, b"DB index is out of range"),
            (f"redis://127.0.0.1:{server.port}/3", 2, b"uthenticat"),
            (f"redis://:wrong@127.0.0.1:{server.port}/3", 2, b"invalid username-password pair"),
        ]:
            ran = process("bloom", "info", "f", "--redis", url)
            assert (ran.returncode, said in ran.stderr) == (code, True)
            assert ran.stderr.count(b"\n") == (code != 0)
            assert b"wrong@" not in ran.stderr
            assert b"sesame" not in ran.stderr


@needs_redis
def test_a_lost_connection_is_one_line(tmp_path: Path) -> None:
    with running_redis(tmp_path) as server:
        assert process("bloom", "create", "f", *SHAPE, "--redis", server.url).returncode == 0
        argv = command("bloom", "dedupe", "f", "--redis", server.url)
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stderr is not None
            child.stdin.write(b"a\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"a\n"
            server.kill()
            child.stdin.write(b"b\n")
            child.stdin.flush()
            assert child.wait(timeout=60) == 2
            assert child.stdout.read() == b""
            said = child.stderr.read()
        assert said.startswith(b"spvfilter: no answer from the Redis server for the filter 'f': ")
        assert said.count(b"\n") == 1


@pytest.mark.few(1)
@needs_redis
@pytest.mark.parametrize("code", [WITH_SIGINT, WITH_UNNOTICED_SIGINT])
@pytest.mark.parametrize("stuck", [False, True])
def test_a_second_interrupt_ends_a_stuck_command(tmp_path: Path, stuck: bool, code: str) -> None:
    with running_redis(tmp_path) as server:
        assert process("bloom", "create", "f", *SHAPE, "--redis", server.url).returncode == 0
        argv = command("bloom", "dedupe", "f", "--redis", server.url, code=code)
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stderr is not None
            child.stdin.write(b"a\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"a\n"
            if stuck:
                server.process.send_signal(signal.SIGSTOP)
                child.stdin.write(b"b\n")
                child.stdin.flush()
            try:
                for _ in range(2 if stuck else 1):  # the second interrupt does not wait for the batch
                    child.send_signal(signal.SIGINT)
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(timeout=1 if stuck else 60)
                assert child.wait(timeout=60) == 130
            finally:
                server.process.send_signal(signal.SIGCONT)
            assert child.stderr.read() == b"spvfilter: interrupted\n"


@pytest.mark.few(1)
@pytest.mark.parametrize("code", [WITH_SIGINT, WITH_UNNOTICED_SIGINT])
def test_an_interrupt_ends_the_wait_for_a_response(code: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        argv = command(
            "bloom", "info", "f", "--redis", f"redis://127.0.0.1:{mute.getsockname()[1]}?socket_timeout=600", code=code
        )
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as child:
            with mute.accept()[0] as asked:
                assert asked.recv(1) == b"*"
                child.send_signal(signal.SIGINT)
                out, err = child.communicate(timeout=60)
            assert (child.returncode, out, err) == (130, b"", b"spvfilter: interrupted\n")


MISSING_A_CANCELLATION = """
import asyncio, os, signal, spvfilter.bloom.redis.opening as module

async def opening(*given):
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        pass
    await asyncio.Event().wait()

module.open_any = opening
"""


def test_an_interrupt_ends_a_wait_that_ignores_cancellation() -> None:
    code = f"{MISSING_A_CANCELLATION}\n{WITH_SIGINT}"
    ran = process("bloom", "info", "f", "--redis", "redis://127.0.0.1:1", code=code)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"spvfilter: interrupted\n")


@pytest.mark.parametrize(
    "url",
    ["", "localhost", "http://localhost", "redis://localhost:port", "redis://localhost:6379/zero?db=x", "redis://[::1"],
)
def test_a_wrong_url_is_not_repeated(run: Any, url: str) -> None:
    ran = run("bloom", "info", "f", "--redis", url)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("spvfilter: not a URL of a Redis server: ")


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "unix:///nowhere/redis.sock"])
def test_an_unreachable_server_is_one_line(run: Any, url: str) -> None:
    ran = run("bloom", "info", "f", "--redis", url)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("spvfilter: no answer from the Redis server for the filter 'f': Error ")
    assert ran.err.endswith("; start the server, or check its URL\n")


@pytest.mark.slow
def test_without_redis_py_only_files_work(tmp_path: Path) -> None:
    ran = process("bloom", "info", "f", "--redis", "redis://127.0.0.1:1", code=WITHOUT_REDIS)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr == f"spvfilter: filters in Redis need redis-py; {remedy('redis')}\n".encode()
    path = tmp_path / "f"
    assert process("bloom", "create", path, *SHAPE, code=WITHOUT_REDIS).returncode == 0
    assert len(BloomFilter.open(path)) == 0
