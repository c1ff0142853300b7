"""What a worker of a cluster does: it gives back the bytes of a part's file, or tells which files it sees and what
blocks they have.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from spvfilter._public import public
from spvfilter._version import __version__
from spvfilter.errors import SourceError
from spvfilter.kernel import Coin, EntryKind, WatchTable
from spvfilter.network import Network
from spvfilter.scan.coinfile import table_with_coins
from spvfilter.scan.listing import Listing, list_file
from spvfilter.scan.partfile import PartSummary, PartWriter
from spvfilter.scan.parts import PartTask, scan_part
from spvfilter.scan.remote import RemoteFile, located, opened
from spvfilter.scan.sources import BlockFiles


class Shared(NamedTuple):
    """What all parts of a pass have in common, sent to each worker once."""

    version: str
    """Of spvfilter."""
    number: int
    """Of the pass; with `owner` it says whether a worker has made its table already."""
    owner: bytes
    table: bytes
    """See `packed_table`."""
    coins: bytes | None
    """Of a file of outpoints."""


def packed_table(table: WatchTable) -> bytes:
    """A table's entries and outpoints, in their order."""
    entries = [(int(kind), value) for kind, value in table.entries()]
    return pickle.dumps((entries, [(outpoint, tuple(coin)) for outpoint, coin in table.coins()]), protocol=5)


def _unpacked(raw: bytes) -> WatchTable:
    table = WatchTable()
    entries, coins = pickle.loads(raw)  # noqa: S301  from the program that gives this worker its code, too
    for kind, value in entries:
        table.add(EntryKind(kind), value)
    for outpoint, rest in coins:
        coin = Coin(*rest)
        table.set_coin(outpoint, coin.entry, coin.value, coin.script)
    return table


class _Latest:
    """The table of the latest pass that a worker has had to do with."""

    def __init__(self) -> None:
        self._key: tuple[bytes, int] | None = None
        self._table = WatchTable()
        self._lock = threading.Lock()

    def get(self, shared: Shared) -> WatchTable:
        with self._lock:
            key = shared.owner, shared.number
            if self._key != key:
                table = _unpacked(shared.table)
                if shared.coins is not None:
                    with tempfile.NamedTemporaryFile(prefix="spvfilter-") as file:
                        file.write(shared.coins)
                        file.flush()
                        table = table_with_coins(table, Path(file.name))
                self._key, self._table = key, table
            return self._table


_latest = _Latest()


def part_bytes(task: PartTask, shared: Shared) -> bytes:
    """The file of a part.

    Raises SourceError on a machine that has another version or does not see the files, or not all of them.
    """
    if shared.version != __version__:
        raise SourceError(f"spvfilter {__version__} is on a worker, and {shared.version} here: all need the same")
    for planned in task.part.files:
        for name in (planned.path, *(planned.undo or ())[:1]):
            try:
                with opened(located(str(name))):
                    pass
            except OSError as error:
                raise SourceError(
                    f"a worker cannot read {name}: {error.strerror}; each worker has to see the files by the same path"
                ) from error
    file, summary = BytesIO(), PartSummary()
    writer = PartWriter(file, task.key)
    for block in scan_part(task, _latest.get(shared), summary):
        writer.add(block)
    writer.end(summary)
    return file.getvalue()


@public
class SeenFile(NamedTuple):
    """A file as a worker sees it.

    Two workers that see the same see the same file, or copies that one machine made of another's disk.
    """

    path: str
    device: int
    inode: int
    size: int
    """Bytes."""
    changed: int
    """Ns since 1970."""


class ListedFile(NamedTuple):
    """The blocks of a file, as a worker has listed them."""

    path: str
    key: bytes
    is_hex: bool
    is_assumed: bool
    listing: Listing

    @property
    def content(self) -> bytes:
        """What it consists of, wherever it lies."""
        undo = self.listing.undo
        beside = b"" if undo is None else str(undo.path).encode() + b"\0" + undo.key
        head = b"\0".join((self.path.encode(), self.key, beside, bytes((self.is_hex,))))
        return len(head).to_bytes(4, "little") + head + bytes(self.listing.rows) + bytes(self.listing.previous)


def files_here(paths: tuple[str, ...]) -> tuple[SeenFile, ...]:
    """The files of blocks that these paths stand for on this machine, in their order; those that are not there are left
    out.
    """
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
    """The blocks of one file, by their headers. What cannot be read is a problem of the listing."""
    files = BlockFiles(path, undo=undo)
    listing = list_file(files, 0, Network.named(network))
    file = files.file(0)
    return ListedFile(path, file.key, file.is_hex, file.is_assumed, listing)
