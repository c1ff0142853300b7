"""Functions that run on a worker of a cluster: they scan a part, report the files, and list their blocks."""

from __future__ import annotations

import tempfile
import threading
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import SourceError
from spvfilter.kernel import WatchTable
from spvfilter.network import Network
from spvfilter.scan.coinfile import table_with_coins
from spvfilter.scan.edition import EDITION, mismatch
from spvfilter.scan.listing import FileListing, list_file
from spvfilter.scan.partfile import PartSummary, PartWriter
from spvfilter.scan.parts import PartTask
from spvfilter.scan.remote import RemoteFile, located, opened
from spvfilter.scan.sources import BlockFiles
from spvfilter.watch.compiled import ImagePlace, ReplacedListError, check_image


class Shared(NamedTuple):
    """Data that all parts of a pass need. Each worker gets it once."""

    edition: str
    """Edition of spvfilter on the sender."""
    number: int
    """Number of the pass. Together with `owner`, it tells a worker whether it already has this table."""
    owner: bytes
    """16 random bytes that identify the engine."""
    table: bytes | ImagePlace
    """Image of the table, or its place in a file that the sender sees."""
    coins: bytes | None
    """Contents of the file of outpoints, or None."""


class _Latest:
    """The table of the latest pass in which this worker has scanned a part."""

    def __init__(self) -> None:
        self._key: tuple[bytes, int] | None = None
        self._table = WatchTable()
        self._lock = threading.Lock()

    def get(self, shared: Shared) -> WatchTable:
        """Return the table of a pass, which is made only once. Raises ReplacedListError."""
        with self._lock:
            key = shared.owner, shared.number
            if self._key != key:
                table = shared.table.open() if isinstance(shared.table, ImagePlace) else WatchTable(shared.table)
                if shared.coins is not None:
                    with tempfile.TemporaryDirectory(prefix="spvfilter-") as folder:
                        file = Path(folder, "coins")
                        file.write_bytes(shared.coins)
                        table = table_with_coins(table, file)
                self._key, self._table = key, table
            return self._table


_latest = _Latest()


def part_bytes(task: PartTask, shared: Shared) -> bytes | None:
    """Scan a part and return the bytes of its file, or None if this worker does not see the file of the watch list.

    Raises SourceError if this worker runs a different version of spvfilter, or does not see all files.
    """
    if shared.edition != EDITION:
        raise SourceError(f"a worker {mismatch(EDITION, shared.edition)}")
    for planned in task.part.files:
        for name in (planned.path, *(planned.undo or ())[:1]):
            try:
                with opened(located(str(name))):
                    pass
            except OSError as error:
                raise SourceError(
                    f"a worker cannot read {name}: {error.strerror}; each worker must see the files under the same path"
                ) from error
    try:
        table = _latest.get(shared)
    except ReplacedListError:
        return None
    file, summary = BytesIO(), PartSummary()
    writer = PartWriter(file, task.key)
    image = table.image()

    def is_over() -> bool:  # asked before each batch
        check_image(image)
        return False

    for block in task.scan(table, summary, is_over):
        writer.add(block)
    check_image(image)
    writer.end(summary)
    return file.getvalue()


@public
class SeenFile(NamedTuple):
    """A file as a worker sees it.

    Two workers that see the same values see the same file, or the same file on a copied disk.
    """

    path: str
    """Path of the file."""
    device: int
    """Number of the device."""
    inode: int
    """Number of the inode."""
    size: int
    """Size in bytes."""
    changed: int
    """Time of the last change (Unix time in nanoseconds)."""


class ListedFile(NamedTuple):
    """The blocks of a file, as listed by a worker."""

    path: str
    """Path of the file."""
    key: bytes
    """The 8-byte key that the file is XORed with, or b""."""
    is_hex: bool
    """True if the file is one block in hex digits."""
    is_assumed: bool
    """True if nothing in the file reveals the network of its block."""
    listing: FileListing
    """The blocks, from their headers."""

    @property
    def content(self) -> bytes:
        """Bytes that identify the contents of the file, the same on every machine."""
        undo = self.listing.undo
        beside = b"" if undo is None else str(undo.path).encode() + b"\0" + undo.key
        head = b"\0".join((self.path.encode(), self.key, beside, bytes((self.is_hex,))))
        return len(head).to_bytes(4, "little") + head + bytes(self.listing.rows) + bytes(self.listing.previous)


def files_here(paths: tuple[str, ...]) -> tuple[SeenFile, ...]:
    """Return the block files at these paths on this machine, in order. Missing files are omitted."""
    files = BlockFiles(paths)
    seen: list[SeenFile] = []
    for number in range(len(files)):
        path = files.file(number).path
        if isinstance(path, RemoteFile):
            continue
        try:
            status = path.stat()
        except OSError:
            continue
        seen.append(SeenFile(str(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(seen)


def list_here(path: str, undo: str, network: str) -> ListedFile:
    """List the blocks of one file, reading only their headers. Unreadable parts become problems in the listing."""
    files = BlockFiles(path, undo=undo)
    listing = list_file(files, 0, Network.named(network))
    file = files.file(0)
    return ListedFile(path, file.key, file.is_hex, file.is_assumed, listing)
