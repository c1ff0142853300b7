"""Atomic file replacement: the files that remain after a failure at any point."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spvfilter.files import replacing


def names_beside(path: Path) -> list[str]:
    return [entry.name for entry in path.parent.iterdir()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.fixture
def small_files_only() -> Iterator[None]:
    """Simulates a full disk: no file can grow beyond 64 KiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("existing", [None, b"old"])
def test_a_file_appears_completely(path: Path, existing: bytes | None) -> None:
    if existing is not None:
        path.write_bytes(existing)
    with replacing(path) as file:
        file.write(b"new")
        assert path.exists() is (existing is not None)
    assert path.read_bytes() == b"new"
    assert names_beside(path) == ["file"]


def test_no_other_user_can_read_the_file(path: Path) -> None:
    path.write_bytes(b"old")
    path.chmod(0o666)
    with replacing(path) as file:
        file.write(b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_a_failing_block_leaves_only_the_old_file(path: Path, error: type[BaseException]) -> None:
    path.write_bytes(b"old")
    with pytest.raises(error), replacing(path) as file:
        file.write(b"half of it")
        raise error
    assert path.read_bytes() == b"old"
    assert names_beside(path) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_disk_leaves_only_the_old_file(path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise OSError(5, "Input/output error")

    path.write_bytes(b"old")
    monkeypatch.setattr(os, call, fails)
    with pytest.raises(OSError, match="Input/output error"), replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert names_beside(path) == ["file"]


@pytest.mark.usefixtures("small_files_only")
@pytest.mark.parametrize("size", [(1 << 16) + 1, 1 << 20])
def test_a_full_disk_leaves_only_the_old_file(path: Path, size: int) -> None:
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="File too large") as caught, replacing(path) as file:
        file.write(bytes(size))
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert names_beside(path) == ["file"]


def test_a_file_is_synced_before_it_is_renamed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        steps.append(
            "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else f"file of {os.fstat(descriptor).st_size}"
        )
        fsync(descriptor)

    def replaced(*arguments: Any) -> None:
        steps.append("rename")
        replace(*arguments)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with replacing(path) as file:
        file.write(b"new")
    assert steps == ["file of 3", "rename", "directory"]


def test_the_longest_allowed_name_works(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_a_path_without_a_directory_is_in_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with replacing(Path("file")) as file:
        file.write(b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_missing_directory_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "no" / "file"):
        raise AssertionError("there is nowhere to write")


def test_an_error_names_the_file_to_be_written(path: Path, tmp_path: Path) -> None:
    missing = tmp_path / "no" / "file"
    with pytest.raises(FileNotFoundError) as caught, replacing(missing) as file:
        file.write(b"new")
    assert str(caught.value) == f"[Errno 2] No such file or directory: '{missing}'"
    path.mkdir()
    with pytest.raises(IsADirectoryError) as refused, replacing(path) as file:
        file.write(b"new")
    assert str(refused.value) == f"[Errno 21] Is a directory: '{path}'"
    assert names_beside(path) == ["file"]
    with pytest.raises(FileNotFoundError, match="other"), replacing(tmp_path / "new"):
        (tmp_path / "other").read_bytes()  # an error of another file keeps its name
