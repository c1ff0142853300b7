"""Row files: the blocks of each finished part, so that later plans still know the blocks that a node has pruned.

A row file is stored next to the part's file, under the same name with the suffix `.rows`:

| bytes | field |
|---|---|
| 8 | `spvrows1` |
| 4 | number of blocks, u32 little endian |
| 73 for each | the row of a block, as scan.rows describes it |
| 32 for each | hash of the previous block, wire order: for each row without the FOLLOWS flag |
| 32 | SHA-256 of all preceding bytes |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from spvfilter.errors import SourceError
from spvfilter.files import SHARED, replacing
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.manifest import Manifest
from spvfilter.scan.rows import FILE_NUMBER, FOLLOWS, HASH_AT, ROW_SIZE

SUFFIX = ".rows"
_MAGIC = b"spvrows1"
_LEAST = len(_MAGIC) + FILE_NUMBER.size + HASH_SIZE  # Size in bytes of a file without blocks.


@dataclass(frozen=True, slots=True)
class PartRows:
    """The blocks of a finished part."""

    name: str
    """Name of the part's file."""
    rows: bytes
    """The blocks in chain order: one encoded 73-byte row for each block."""
    previous: dict[int, bytes]
    """Hash of the previous block, keyed by row number. It is omitted if that block is in the preceding row."""

    def __len__(self) -> int:
        return len(self.rows) // ROW_SIZE

    def __iter__(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yield each row, the hash of its block, and the hash of that block's parent."""
        before = b""
        for number in range(len(self)):
            raw = self.rows[number * ROW_SIZE : (number + 1) * ROW_SIZE]
            block = raw[HASH_AT : HASH_AT + HASH_SIZE]
            yield raw, block, self.previous.get(number, before)
            before = block


def write_rows(path: Path, rows: bytes, previous: dict[int, bytes]) -> None:
    """Write the rows of a part. Raises OSError."""
    count = len(rows) // ROW_SIZE
    raw = _MAGIC + FILE_NUMBER.pack(count) + rows + b"".join(previous[number] for number in _starts(rows))
    with replacing(path, SHARED) as file:
        file.write(raw + sha256(raw).digest())


def read_rows(path: Path, name: str) -> PartRows:
    """Return the rows of a part. Raises SourceError if the file is damaged, and OSError if it cannot be read."""
    raw = path.read_bytes()
    if len(raw) < _LEAST or not raw.startswith(_MAGIC) or sha256(raw[:-HASH_SIZE]).digest() != raw[-HASH_SIZE:]:
        raise SourceError(f"{path}: damaged, or not the blocks of a part: scan into another directory")
    (count,) = FILE_NUMBER.unpack_from(raw, len(_MAGIC))
    begin = len(_MAGIC) + FILE_NUMBER.size
    rows = raw[begin : begin + count * ROW_SIZE]
    hashes = raw[begin + len(rows) : -HASH_SIZE]
    starts = list(_starts(rows))
    if len(rows) != count * ROW_SIZE or len(hashes) != len(starts) * HASH_SIZE:
        raise SourceError(f"{path}: damaged, or not the blocks of a part: scan into another directory")
    places = range(0, len(hashes), HASH_SIZE)
    return PartRows(name, rows, {row: hashes[at : at + HASH_SIZE] for row, at in zip(starts, places, strict=True)})


def _starts(rows: bytes) -> Iterator[int]:
    """Yield the numbers of the rows whose previous block is not the one in the preceding row."""
    return (number for number in range(len(rows) // ROW_SIZE) if not rows[(number + 1) * ROW_SIZE - 1] & FOLLOWS)


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """The last finished run in a directory, with the blocks of its parts."""

    directory: Path
    """The directory of the parts."""
    lasts: list[bytes]
    """Hash of the last block in each file of each part, and of the last block of the chain, in wire order."""
    names: list[str]
    """Names of the files of the parts, in chain order."""

    @classmethod
    def of(cls, directory: Path, inputs: dict[str, str]) -> EarlierRun | None:
        """Return the last finished run in a directory, or None if there is none with these inputs.

        A damaged manifest counts as none here, because the run that uses the directory reports it. Raises OSError.
        """
        try:
            manifest = Manifest.read(directory)
        except SourceError:
            return None
        if manifest is None or not manifest.tip or any(manifest.inputs.get(key) != inputs[key] for key in inputs):
            return None
        lasts = list(map(bytes.fromhex, (*manifest.lasts, manifest.tip)))
        return cls(directory / "parts", lasts, manifest.finished)

    def parts(self) -> Iterator[PartRows]:
        """Yield the blocks of each part whose file of rows exists. Raises OSError or SourceError."""
        for name in self.names:
            path = (self.directory / name).with_suffix(SUFFIX)
            if path.exists():
                yield read_rows(path, name)


def lost_block(block: bytes) -> SourceError:
    """Return the error for a block of an earlier run that is no longer in any file."""
    return SourceError(
        f"block {hash_to_hex(block)} was scanned before, but no file contains it any more, so its rows would be lost."
        " Restore the files, or scan the remaining ones into another directory. (Blocks that a node has pruned may be"
        " missing, but only below the lowest block that is left.)"
    )
