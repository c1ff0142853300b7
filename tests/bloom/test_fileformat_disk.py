"""The file of a filter on disk: mapped by readers and one writer, replaced atomically, loaded with one copy in
memory.
"""

from __future__ import annotations

import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom import CountingBloomFilter, ScalableBloomFilter, fileformat
from spvfilter.bloom.filter import BloomFilter
from spvfilter.errors import FormatError, ParameterError, ReadOnlyError
from support.filters.filterfiles import header, sample

# Mapped files


def test_a_read_only_mapped_file_stays_unchanged(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    made = BloomFilter.open(tmp_path / "f", mmap=True)
    assert made == sample()
    for change in (lambda: made.add(b"a"), lambda: made.update([b"x"]), made.clear, lambda: made.__ior__(sample())):
        with pytest.raises(ReadOnlyError):
            change()
    made.close()  # a reader has nothing to finish
    assert (tmp_path / "f").read_bytes() == bytes(sample())
    assert made | sample() == sample()


def test_a_writable_mapped_file_keeps_added_keys(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    expected = sample()
    expected.add(b"new")
    with BloomFilter.open(tmp_path / "f", mmap=True, writable=True) as made:
        assert made.add(b"new")
        twin = made.copy()
    assert (tmp_path / "f").read_bytes() == bytes(expected) == bytes(twin)
    assert made == expected  # still readable
    with pytest.raises(ReadOnlyError):
        made.add(b"too late")
    made.close()
    twin.add(b"in memory")
    assert (tmp_path / "f").read_bytes() == bytes(expected)


def test_readers_of_a_mapped_file_see_added_keys(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    reader = BloomFilter.open(tmp_path / "f", mmap=True)
    with BloomFilter.open(tmp_path / "f", mmap=True, writable=True) as writer:
        writer.add(b"new")
        assert b"new" in reader


@pytest.mark.parametrize("mmap", [False, True])
def test_an_open_or_unclosed_file_is_refused(tmp_path: Path, mmap: bool) -> None:
    sample().save(tmp_path / "f")
    made: BloomFilter | None = BloomFilter.open(tmp_path / "f", mmap=True, writable=True)
    assert made is not None
    made.add(b"new")
    while True:
        with pytest.raises(
            FormatError,
            match=r"flags at byte 13: the file is open for writing, or was not closed: verify=False opens it",
        ):
            BloomFilter.open(tmp_path / "f", mmap=mmap)
        with pytest.raises(FormatError, match="not closed"):
            BloomFilter.from_bytes((tmp_path / "f").read_bytes())
        with pytest.raises(FormatError, match="not closed"):
            BloomFilter.open(tmp_path / "f", mmap=True, writable=True)
        assert b"new" in BloomFilter.open(tmp_path / "f", mmap=mmap, verify=False)
        if made is None:
            break
        made = None  # as if the process had been killed
    with BloomFilter.open(tmp_path / "f", mmap=True, writable=True, verify=False) as saved:
        assert b"new" in saved
    assert b"new" in BloomFilter.open(tmp_path / "f", mmap=mmap)


def test_an_error_inside_with_still_closes_the_file(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    with pytest.raises(RuntimeError), BloomFilter.open(tmp_path / "f", mmap=True, writable=True) as made:
        made.add(b"new")
        raise RuntimeError
    assert b"new" in BloomFilter.open(tmp_path / "f")


def test_a_file_refused_for_writing_stays_unchanged(tmp_path: Path) -> None:
    raw = bytearray(bytes(sample()))
    raw[-1] ^= 1
    (tmp_path / "f").write_bytes(raw)
    with pytest.raises(FormatError):
        BloomFilter.open(tmp_path / "f", mmap=True, writable=True)
    assert (tmp_path / "f").read_bytes() == raw


def test_writable_needs_a_mapped_file(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    with pytest.raises(ParameterError, match="writable needs mmap=True"):
        BloomFilter.open(tmp_path / "f", writable=True)


def test_a_huge_sparse_file_is_mapped_without_reading_it(tmp_path: Path) -> None:
    bits = (1 << 33) + 5
    with (tmp_path / "f").open("wb") as file:
        file.write(header(bits=bits, hash_funcs=7))
        file.truncate(64 + (bits + 7) // 8 + 4)
    made = BloomFilter.open(tmp_path / "f", mmap=True, writable=True, verify=False)
    assert made.bits == bits
    keys = [bytes([i]) * 20 for i in range(30)]
    made.update(keys)
    again = BloomFilter.open(tmp_path / "f", mmap=True, verify=False)
    assert all(again.contains_many(keys))
    assert max(at for key in keys for at in made.positions(key)) > 1 << 32
    assert (tmp_path / "f").stat().st_blocks * 512 < 50_000_000


# Saving


def test_other_users_cannot_read_a_saved_file(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    assert BloomFilter.open(tmp_path / "f") == sample()
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600


def test_a_failed_save_keeps_the_old_file(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    large = BloomFilter(bits=1 << 25, hash_funcs=1)  # 4 MiB
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))  # as if the disk were full after 2
    try:
        with pytest.raises(OSError, match="File too large"):
            large.save(tmp_path / "f")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert BloomFilter.open(tmp_path / "f") == sample()
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


MEMORY = """
import sys
from pathlib import Path
from spvfilter.bloom.filter import BloomFilter

def high_water():  # MiB; ru_maxrss would start from the parent's
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024

path = Path(sys.argv[1])
raw = path.read_bytes() if sys.argv[2] == "from_bytes" else b""
before = high_water()
match sys.argv[2]:
    case "open":
        made = BloomFilter.open(path)
    case "from_bytes":
        made = BloomFilter.from_bytes(raw)
    case "save":
        BloomFilter.open(path, mmap=True, verify=False).save(path.with_suffix(".copy"))
print(high_water() - before)
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["open", "from_bytes", "save"])
def test_loading_needs_the_filters_memory_only_once(how: str, tmp_path: Path) -> None:
    made = BloomFilter(bits=1 << 29, hash_funcs=3)  # 64 MiB
    made.add(b"a")
    made.save(tmp_path / "f")
    run = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "f"), how], capture_output=True, text=True, check=True
    )
    assert float(run.stdout) < 64 * 1.2


MADE: dict[str, Callable[[], Any]] = {
    "plain": lambda: BloomFilter(100, 0.01),
    "counting": lambda: CountingBloomFilter(100, 0.01),
    "scalable": lambda: ScalableBloomFilter(100, 0.01),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_save_keeps_symlink_and_mode(tmp_path: Path, make: Callable[[], Any]) -> None:
    (tmp_path / "folder").mkdir()
    target, link, new = tmp_path / "folder" / "f", tmp_path / "link", tmp_path / "new"
    made = make()
    made.save(new)
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    link.symlink_to(target)
    made.save(link)  # the link is dangling at first
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    target.chmod(0o640)
    made.add(b"key")
    made.save(link)
    assert link.is_symlink()
    assert type(made).open(target) == made
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in target.parent.iterdir()] == ["f"]


def test_failed_save_keeps_the_old_file_and_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    made = BloomFilter(100, 0.01)
    made.save(path)
    path.chmod(0o644)
    before = path.read_bytes()
    monkeypatch.setattr(fileformat, "write_to", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        made.save(path)
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [*tmp_path.iterdir()] == [path]
