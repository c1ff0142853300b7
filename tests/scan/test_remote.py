"""Files by URL are scanned like files on disk. A failing store ends the scan, which can be resumed."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spvfilter import cli
from spvfilter.errors import ParameterError, RemoteFileError, SourceError
from spvfilter.network import REGTEST
from spvfilter.scan import BlockFiles, Matcher, PartScan, Plan, RemoteFile, Threads, scan_parts
from spvfilter.scan.remote import fetched, located, opened, seen_anywhere
from spvfilter.watch.watchlist import WatchList
from support.blocks.chains import found_by, record, xored
from support.blocks.partscans import everything
from support.blocks.undo import framed, ledger_chain

pytestmark = pytest.mark.remote
KEY = bytes(range(1, 9))
BUCKET = "blocks"
PLACES = (
    (0, 8),
    (30_000, 100),
    (65_000, 536),
    (65_001, 536),
    (900_000, 200_000),
    (999_999, 5),
    (10, 5),
    (2_000_000, 9),
)


def contents(seed: int, key: bytes = KEY) -> tuple[WatchList, dict[str, bytes]]:
    """The files of a chain, with undo files."""
    ledger, blocks, records = ledger_chain(seed)
    files = {"xor.dat": key} if key else {}
    for number, start in enumerate((0, 10, 20)):
        for name, pieces in (
            ("blk", map(record, blocks[start : start + 10])),
            ("rev", map(framed, records[start : start + 10])),
        ):
            raw = b"".join(pieces)
            files[f"{name}{number:05}.dat"] = xored(raw, key) if key else raw
    return ledger.interest.watch(), files


def put(url: str, files: dict[str, bytes]) -> None:
    import fsspec

    for name, raw in files.items():
        store, path = fsspec.core.url_to_fs(f"{url}/{name}")
        store.makedirs(path.rpartition("/")[0], exist_ok=True)
        store.pipe_file(path, raw)


@pytest.fixture
def memory() -> Iterator[str]:
    import fsspec

    yield "memory://chain/blocks"
    fsspec.filesystem("memory").rm("/chain", recursive=True)


_SERVER = """
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
input()
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A moto server with a bucket."""
    import fsspec

    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet
    ) as server:
        assert server.stdout is not None
        port = next(int(line.split()[1]) for line in server.stdout if line.startswith(b"port "))
        given = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "who",
            "AWS_SECRET_ACCESS_KEY": "what",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
        }
        with pytest.MonkeyPatch.context() as patched:
            for name, value in given.items():
                patched.setenv(name, value)
            # A store from an earlier server of this process has that server's port.
            fsspec.get_filesystem_class("s3").clear_instance_cache()
            fsspec.filesystem("s3", use_listings_cache=False).mkdir(BUCKET)
            yield f"s3://{BUCKET}"
        server.kill()


async def scanned(source: str | Path, out: Path, watch: WatchList, undo: str = "auto") -> dict[str, bytes]:
    engine = Threads(2)
    try:
        await scan_parts(
            PartScan(out, Plan.of(BlockFiles(source, undo=undo), REGTEST, part_size=5_000), watch), engine=engine
        )
    finally:
        await engine.aclose()
    return await asyncio.to_thread(everything, out)


def on_disk(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    return folder


@pytest.mark.few(1)
@pytest.mark.parametrize("undo", ["require", "off"])
async def test_a_scan_of_urls_leaves_the_same_bytes(memory: str, s3: str, tmp_path: Path, undo: str) -> None:
    watch, files = contents(1)
    folder = on_disk(tmp_path / "disk", files)
    expected = await scanned(folder, tmp_path / "out", watch, undo)
    assert len(expected) > 3
    for number, url in enumerate((memory, f"{s3}/chain", f"file://{folder}")):
        if number < 2:
            put(url, files)
        assert await scanned(url, tmp_path / str(number), watch, undo) == expected
    matcher, local = Matcher(watch.copy()), Matcher(watch.copy())
    assert await found_by(matcher, BlockFiles(memory, undo=undo)) == await found_by(
        local, BlockFiles(folder, undo=undo)
    )
    assert matcher.report.by_undo == local.report.by_undo


@pytest.mark.columns
def test_an_export_of_a_bucket_equals_that_of_a_disk(
    s3: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, files = contents(3, b"")
    put(f"{s3}/exported", files)
    on_disk(tmp_path / "disk", files)
    for name, path in (("bucket", f"{s3}/exported"), ("disk", str(tmp_path / "disk"))):
        argv = ["export", path, "--network", "regtest", "--out", str(tmp_path / "tables" / name), "--quiet"]
        assert cli.main(argv) == 0, capsys.readouterr().err
    tables = tmp_path / "tables"
    paths = [path.relative_to(tables / "disk") for path in (tables / "disk").glob("*/*/*.parquet")]
    assert len(paths) == 4
    assert all((tables / "bucket" / path).read_bytes() == (tables / "disk" / path).read_bytes() for path in paths)


@pytest.mark.slow
def test_the_command_scans_a_bucket(s3: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watch, files = contents(2, b"")
    watch.save(tmp_path / "list")
    put(f"{s3}/second", files)
    on_disk(tmp_path / "disk", files)
    options = ["--network", "regtest", "--watch", str(tmp_path / "list"), "--format", "csv"]
    for number, path in enumerate((f"{s3}/second", str(tmp_path / "disk"))):
        assert cli.main(["scan", path, *options, "--output", str(tmp_path / str(number))]) == 0, capsys.readouterr().err
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    options = ["--network", "regtest", "--watch", str(tmp_path / "list")]
    argv = ["scan", f"{s3}/second", *options, "--out", str(tmp_path / "out"), "--with-transactions"]
    assert cli.main([*argv, "--publish", f"{s3}/found"]) == 0
    for name in ("matches.csv", "transactions.csv", "totals.csv"):
        assert RemoteFile(f"{s3}/found/{name}").read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert f"{s3}/found/matches.csv\n" in capsys.readouterr().err
    assert cli.main([*argv, "--publish", "found"]) == 2
    assert "--publish takes a URL such as s3://bucket/found" in capsys.readouterr().err
    assert cli.main(["scan", f"{s3}/second", *options, "--out", f"{s3}/out"]) == 2
    assert "--out takes a local path, not a URL" in capsys.readouterr().err
    assert cli.main(["scan", f"{s3}/second", *options, "--publish", f"{s3}/out"]) == 2
    assert "--format parquet need --out DIR" in capsys.readouterr().err
    assert cli.main(["scan", f"{s3}/nothing", *options]) == 2
    assert f"{s3}/nothing" in capsys.readouterr().err


async def test_a_failing_store_ends_the_scan_which_resumes(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, files = contents(3)
    put(memory, files)
    expected = await scanned(on_disk(tmp_path / "disk", files), tmp_path / "all", watch)
    read, count, limit = RemoteFile.read, 0, 0

    def fails(file: RemoteFile, offset: int, size: int) -> bytes:
        nonlocal count
        count += 1
        if count == limit:
            raise RemoteFileError(f"{file}: out of order")
        return read(file, offset, size)

    with monkeypatch.context() as patched:
        patched.setattr(RemoteFile, "read", fails)
        assert await scanned(memory, tmp_path / "sound", watch) == expected
        reads, rng = count, random.Random(3)
        assert reads > 10
        for attempt in range(6):
            count, limit = 0, rng.randrange(1, reads + 1)
            out = tmp_path / str(attempt)
            with pytest.raises(RemoteFileError, match="out of order"):
                await scanned(memory, out, watch)
            assert await scanned(memory, out, watch) == expected


def short(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def nothing(raw: bytes) -> bytes:
    return b""


def longer(raw: bytes) -> bytes:
    """Answers like a store that gives the whole file instead of the requested range."""
    return raw + bytes(1_000)


@pytest.mark.few(1)
@pytest.mark.parametrize("lie", [short, nothing, longer])
async def test_a_range_of_wrong_length_is_never_accepted(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: Callable[[bytes], bytes]
) -> None:
    """An empty answer would look like the zeros that Core writes in advance, and blocks would be lost silently."""
    watch, files = contents(3, b"")
    put(memory, files)
    expected = await scanned(on_disk(tmp_path / "disk", files), tmp_path / "all", watch)
    read, count, wrong = RemoteFile.read, 0, 0

    def lies(file: RemoteFile, offset: int, size: int) -> bytes:
        nonlocal count
        count += 1
        raw = read(file, offset, size)
        return lie(raw) if count == wrong else raw

    with monkeypatch.context() as patched:
        patched.setattr(RemoteFile, "read", lies)
        assert await scanned(memory, tmp_path / "sound", watch) == expected
        for attempt, number in enumerate({1, 2, 3, 4, count // 2, count - 1, count}):
            count, wrong, out = 0, number, tmp_path / str(attempt)
            with pytest.raises(
                RemoteFileError,
                match=r"blk|rev.*: requested [\d,]+ bytes starting at byte [\d,]+, but the store returned",
            ):
                await scanned(memory, out, watch)
            assert await scanned(memory, out, watch) == expected


def test_a_file_that_shrinks_while_read_is_an_error(tmp_path: Path) -> None:
    raw = random.Random(5).randbytes(9_000)
    (tmp_path / "file").write_bytes(raw)
    with opened(tmp_path / "file") as reading:
        os.truncate(tmp_path / "file", 5_000)
        assert reading.at(4_000, 1_000) == raw[4_000:5_000]
        for offset in (4_500, 5_000, 6_000):
            for key in (b"", KEY):
                with pytest.raises(SourceError, match="the file shrank while it was being read"):
                    reading.at(offset, 1_000, key)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "error",
    [PermissionError(13, "Forbidden"), OSError(121, "Internal Server Error"), TimeoutError(), RuntimeError("x")],
)
async def test_a_refusing_store_does_not_count_as_a_missing_file(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Otherwise the plan would lack these files, and would differ once the store answers again."""
    from fsspec.implementations.memory import MemoryFileSystem

    watch, files = contents(3)
    put(memory, files)
    expected = await scanned(memory, tmp_path / "all", watch)
    why = getattr(error, "strerror", None) or str(error) or "TimeoutError"
    for name in ("exists", "info", "cat_file"):
        original, answers = getattr(MemoryFileSystem, name), iter((True, True))

        def refuses(
            *args: object, call: Any = original, answers: Iterator[bool] = answers, **options: object
        ) -> object:
            if not next(answers, False):
                raise error
            return call(*args, **options)

        with monkeypatch.context() as patched:
            patched.setattr(MemoryFileSystem, name, refuses)
            with pytest.raises(RemoteFileError, match=f"^memory://.*: {why}$"):
                await scanned(memory, tmp_path / name, watch)
        assert await scanned(memory, tmp_path / name, watch) == expected


class Refusing:
    """A store that always fails."""

    protocol = "s3"

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no credentials")


def test_a_stores_error_names_the_url(monkeypatch: pytest.MonkeyPatch, memory: str, tmp_path: Path) -> None:
    import fsspec.core

    with pytest.raises(ParameterError, match="nowhere://x: fsspec does not support this kind of store"):
        RemoteFile("nowhere://x").exists()
    put(memory, {"blk00000.dat": b"abc"})
    with pytest.raises(FileNotFoundError):
        RemoteFile(f"{memory}/blk00001.dat").size()
    with pytest.raises(SourceError, match="not a regular file"):
        RemoteFile(memory).size()
    with monkeypatch.context() as patched:
        patched.setattr(fsspec.core, "url_to_fs", lambda url, **options: (Refusing(), url))
        with pytest.raises(RemoteFileError, match="s3://b/c: no credentials"):
            BlockFiles("s3://b/c")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "fsspec.core", None)
        with pytest.raises(ParameterError, match=r"s3://b/c: reading files from a URL needs fsspec; .*extra `remote`"):
            BlockFiles("s3://b/c")


def test_only_the_needed_ranges_are_read(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = random.Random(4).randbytes(1_000_000)
    mixed = xored(raw, KEY)
    put(memory, {"file": raw})
    file, asked, read = RemoteFile(f"{memory}/file"), list[tuple[int, int]](), RemoteFile.read

    def noting(file: RemoteFile, offset: int, size: int) -> bytes:
        asked.append((offset, size))
        return read(file, offset, size)

    monkeypatch.setattr(RemoteFile, "read", noting)
    descriptor = fetched(file, [(500_000, 10), (10, 20), (40, 5), (100_020, 7), (999_990, 50)])
    assert asked == [(10, 35), (100_020, 7), (500_000, 10), (999_990, 50)]
    assert os.pread(descriptor, 20, 10) == raw[10:30]
    assert os.pread(descriptor, 50, 999_990) == raw[999_990:]
    os.close(descriptor)
    asked.clear()
    with opened(file) as reading:
        for offset, size in PLACES:
            assert reading.at(offset, size) == raw[offset : offset + size]
            assert reading.at(offset, size, KEY) == mixed[offset : offset + size]
    assert asked == [(0, 65_536), (65_001, 65_536), (900_000, 100_000), (10, 65_536)]


def test_names_are_paths_or_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert located("s3://a/b/") == RemoteFile("s3://a/b")
    assert located("file:///a/b") == Path("/a/b")
    assert located("blocks") == Path("blocks")
    assert seen_anywhere("blocks") == str(tmp_path / "blocks")
    assert seen_anywhere("s3://a/b") == "s3://a/b"
    file = RemoteFile("s3://a/b/blk00000.dat")
    assert (file.name, file.suffix, str(file.with_name("xor.dat"))) == ("blk00000.dat", ".dat", "s3://a/b/xor.dat")
    with pytest.raises(ParameterError, match="a URL must not contain a password") as caught:
        located("ftp://alice:geheim@10.0.0.1/blocks")
    assert "geheim" not in str(caught.value)
    assert located("s3://bucket/alice:b@c").name == "alice:b@c"
    assert repr(file) == "RemoteFile('s3://a/b/blk00000.dat')"


def test_a_file_is_uploaded_completely(memory: str, s3: str, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(b"matches")
    for url in (f"{memory}/deep/file", f"{s3}/deep/file", f"local://{tmp_path}/deep/file"):
        RemoteFile(url).put(tmp_path / "local")
        assert RemoteFile(url).read_bytes() == b"matches"
        assert [each.name for each in RemoteFile(url.rpartition("/")[0]).iterdir()] == ["file"]
    assert (tmp_path / "deep" / "file").read_bytes() == b"matches"


@pytest.mark.slow
def test_a_system_without_files_in_memory_has_nameless_ones(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    put(memory, {"file": b"0123456789"})
    descriptor = fetched(RemoteFile(f"{memory}/file"), [(3, 4)])
    assert os.pread(descriptor, 4, 3) == b"3456"
    os.close(descriptor)
