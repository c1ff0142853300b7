"""Following a chain in files: processes the blocks whenever the block files have changed, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from spvfilter.cli.term.page import complain
from spvfilter.errors import DirectoryInUseError, RemoteFileError, SourceError
from spvfilter.files import NO_ROOM
from spvfilter.rpc.notices import TipNotices
from spvfilter.scan.remote import is_url

_SUFFIXES = (".dat", ".raw", ".blk", ".hex")  # of block files, undo files and xor.dat

FileState = tuple[str, int, int, int]
"""A file's path, inode, size in bytes, and time of the last change (Unix time in nanoseconds)."""


async def follow(scan: Callable[[], Awaitable[int]], paths: Sequence[str], every_s: float, zmq: Sequence[str]) -> int:
    """Call `scan`, then call it again whenever a file at `paths` has changed. This function never returns.

    Errors of the first scan are raised. After that, a file may vanish, or another scan may use the directory: then the
    error is printed once, and the scan is tried again.

    Args:
        scan: Scans the blocks as they are now, and returns an exit code.
        paths: Paths of files and directories. Files that this machine cannot see are scanned each time.
        every_s: Seconds between two checks of the files.
        zmq: Addresses at which a node publishes notifications. The files are also checked when one arrives.
    """
    async with AsyncExitStack() as stack:
        notices = await stack.enter_async_context(TipNotices.subscribed(zmq)) if zmq else None
        before = await asyncio.to_thread(file_states, paths)
        await scan()
        told: str | None = None
        while True:
            await (asyncio.sleep(every_s) if notices is None else notices.wait(every_s))
            now = await asyncio.to_thread(file_states, paths)
            if now is not None and now == before and told is None:
                continue
            before = now
            try:
                await scan()
                told = None
            except (DirectoryInUseError, RemoteFileError, SourceError, OSError) as error:
                if isinstance(error, OSError) and error.errno in NO_ROOM:
                    raise
                if str(error) != told:
                    complain(f"{error}; trying again every {every_s:g} s")
                told = str(error)


def file_states(paths: Sequence[str]) -> list[FileState] | None:
    """Return the states of the files at these paths and next to them, or None if files are not on this machine."""
    if not paths or any(map(is_url, paths)):
        return None
    return sorted({_state(file) for path in paths for file in _files(Path(path))})


def _files(path: Path) -> Iterator[Path]:
    """Yield the block and undo files in a directory. For a file, yield it and its undo file."""
    with suppress(OSError):
        if path.is_dir():
            yield from (file for file in path.iterdir() if file.suffix in _SUFFIXES)
            return
    yield path
    yield path.with_name(f"rev{path.name.removeprefix('blk')}")


def _state(path: Path) -> FileState:
    try:
        status = os.stat(path)  # noqa: PTH116  a Path would be slower
    except OSError:
        return str(path), 0, 0, 0
    return str(path), status.st_ino, status.st_size, status.st_mtime_ns
