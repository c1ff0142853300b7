"""A node's blocks in files of the kind that Bitcoin Core writes, kept for as long as an export needs them.

A pair of files contains the blocks of successive heights, and is never changed:

- `blkHEIGHT.dat` contains the blocks. HEIGHT is the height of the first block, in nine digits.
- `revHEIGHT.dat` contains the undo records of the blocks that have one. It is written first, so it is always complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from spvfilter.files import SHARED, replacing
from spvfilter.network import Network
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.fetching import FetchedBlock
from spvfilter.scan.listing import FileListing, LocalFiles
from spvfilter.scan.partdirectory import TEMPORARY
from spvfilter.scan.rows import HEIGHT, HEIGHT_AT, ROW_SIZE
from spvfilter.scan.sources import BlockFiles, BlockRef
from spvfilter.scan.undomode import UndoMode

_NAME = re.compile(r"blk(\d{9})\.dat")


class SpooledFile(NamedTuple):
    """A file of successive blocks in a spool."""

    first: int
    """Height of the first block."""
    hashes: bytes
    """Hashes of the blocks, 32 bytes each in wire order."""
    previous: bytes
    """Hash of the first block's parent, 32 bytes in wire order."""

    @property
    def last(self) -> int:
        """Height of the last block."""
        return self.first + len(self.hashes) // HASH_SIZE - 1


class BlockSpool:
    """A folder of block files, which cover a range of heights without a gap.

    Files that a killed process left behind, and damaged files, are removed, and their blocks are fetched again.

    Raises OSError if the folder cannot be read or written.
    """

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder = folder
        self._network = network
        self.files: list[SpooledFile] = []
        """The files, lowest first."""
        paths = {path.name: path for path in folder.iterdir() if _NAME.fullmatch(path.name)}
        for name in sorted(paths):
            found = self._read(paths[name])
            if found is None or (self.files and (found.first, found.previous) != (self.last + 1, self.tip)):
                break
            self.files.append(found)
        whole = {path.name for file in self.files for path in self._paths(file.first)}
        for path in folder.iterdir():
            if path.name not in whole and path.name.startswith(("blk", "rev", TEMPORARY)):
                path.unlink(missing_ok=True)

    def __bool__(self) -> bool:
        return bool(self.files)

    @property
    def first(self) -> int:
        """Height of the first block. The spool must not be empty."""
        return self.files[0].first

    @property
    def last(self) -> int:
        """Height of the last block. The spool must not be empty."""
        return self.files[-1].last

    @property
    def tip(self) -> bytes:
        """Hash of the last block, 32 bytes in wire order. The spool must not be empty."""
        return self.files[-1].hashes[-HASH_SIZE:]

    def hash_at(self, height: int) -> bytes:
        """Return the hash of the block at a height from `first` to `last`."""
        file = next(file for file in self.files if height <= file.last)
        return file.hashes[(height - file.first) * HASH_SIZE :][:HASH_SIZE]

    def add(self, first: int, blocks: Sequence[FetchedBlock]) -> None:
        """Write a file of successive blocks that begin at height `first`, above the last block. Raises OSError."""
        magic, (blocks_path, undo_path) = self._network.magic, self._paths(first)
        records = [block.record for block in blocks if block.record is not None]
        if records:
            with replacing(undo_path, SHARED) as file:
                for record in records:
                    file.write(magic + (len(record) - HASH_SIZE).to_bytes(4, "little") + record)
        with replacing(blocks_path, SHARED) as file:
            for block in blocks:
                file.write(magic + len(block.raw).to_bytes(4, "little") + block.raw)
        hashes = b"".join(block.ref.hash for block in blocks)
        self.files.append(SpooledFile(first, hashes, blocks[0].ref.previous))

    def keep_up_to(self, height: int) -> None:
        """Remove the files that contain a block above a height. Raises OSError."""
        while self.files and self.last > height:
            self._remove(self.files.pop())

    def keep_from(self, height: int) -> None:
        """Remove the files that contain no block at or above a height. Raises OSError."""
        while self.files and self.files[0].last < height:
            self._remove(self.files.pop(0))

    def clear(self) -> None:
        """Remove all files. Raises OSError."""
        self.keep_up_to(-1)

    def _remove(self, file: SpooledFile) -> None:
        for path in self._paths(file.first):
            path.unlink(missing_ok=True)

    def _paths(self, first: int) -> tuple[Path, Path]:
        """Return the paths of a block file and of its undo file. The block file is removed first."""
        return self.folder / f"blk{first:09}.dat", self.folder / f"rev{first:09}.dat"

    def _read(self, path: Path) -> SpooledFile | None:
        """Read a file's block hashes. Return None if the file is damaged."""
        hashes, previous = bytearray(), b""
        for found in BlockFiles(path, undo=UndoMode.OFF).index_file(0, self._network):
            if not isinstance(found, BlockRef) or (hashes and found.previous != hashes[-HASH_SIZE:]):
                return None
            previous = previous or found.previous
            hashes += found.hash
        return SpooledFile(height_of(path), bytes(hashes), previous)


def height_of(path: Path) -> int:
    """Return the height of the first block in a spool's file."""
    return int(path.name[len("blk") : -len(".dat")])


class SpooledFiles(LocalFiles):
    """The files of a spool for a plan. All heights follow from the file names, even if the blocks do not contain them.

    Args:
        files: The files.
        start: Height of the first block that the plan needs. Files may contain blocks below it.
    """

    def __init__(self, files: BlockFiles, start: int) -> None:
        super().__init__(files)
        self._start = start

    def listings(self, network: Network) -> Iterator[FileListing]:
        for listing in super().listings(network):
            first = height_of(Path(str(self.file(listing.number).path)))
            for row in range(len(listing)):
                HEIGHT.pack_into(listing.rows, row * ROW_SIZE + HEIGHT_AT, first + row)
            below = max(self._start - first, 0)
            del listing.rows[: below * ROW_SIZE], listing.previous[: below * HASH_SIZE]
            yield listing
