"""Compiled watch lists: files that processes map into memory, so that a long list needs no decoding.

| bytes | field |
|---|---|
| 8 | 89 53 50 56 57 4C 0D 0A |
| u32 | version, 1 |
| u32 | size of the network's name |
| u64 | size of the file |
| u64 | size of the image |
| u64 | size of the labels |
| u64 | size of the accounts |
| 16 | zeros |
| | the image of the table (kernel/csrc/watch/image.h) |
| | labels: u32 number n, n × u32 entry in ascending order, n × u32 end of its text, the texts in UTF-8 |
| | accounts: u32 names, each u32 size and UTF-8; then runs of u32 first entry, u32 entries, u32 name |
| | the network's name |
| 32 | SHA-256 of all preceding bytes |

The header is little-endian. Numbers in the sections are in the machine's byte order, which the image records. Each
section starts at a multiple of 64 bytes, and zeros fill the gaps.

A compiled list may come from an attacker. Loading it checks the header, the sizes of the sections, the order of the
records and of the labels, the outpoints and the accounts. An entry or label is read only when it matches.

No contents can make matching read beyond the file or loop forever, but wrong contents can hide entries. `verify` reads
everything.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from spvfilter.errors import FormatError, ParameterError, SourceError, WatchFileError
from spvfilter.files import replacing
from spvfilter.kernel import WatchTable, is_ascending
from spvfilter.watch.accounts import Accounts, checked_name
from spvfilter.watch.arguments import checked_label
from spvfilter.watch.entrytexts import RUN, EntryAccounts, EntryLabels, packed_texts

MAGIC = b"\x89SPVWL\r\n"
"""The first bytes of a compiled watch list."""
KEY_SIZE = 64
"""Size of the random key of an image, in bytes."""
_VERSION = 1
_HEADER = struct.Struct("<8sIIQQQQ16x")
_NUMBER = struct.Struct("=I")
_ALIGNED = 64
_DIGEST_SIZE = 32
_MOST_NAME = 30_000  # Characters of a network's name; a custom signet has its challenge in it (our choice).
_HEAD = 192  # Bytes of an image's header, which ends with the key.
READ_BELOW = 64_000_000
"""Smallest size, in bytes, of a compiled list that is mapped (our choice). Smaller lists are copied into memory."""
Pieces = list[bytes | memoryview]
_PIECE = 1 << 24  # Number of bytes that are hashed in one step.


class MappedFile(mmap.mmap):
    """A memory-mapped file that remembers its path."""

    path: str
    """Absolute path of the file."""
    status: os.stat_result
    """Status of the file when it was mapped."""

    def is_changed(self) -> bool:
        """Return True if the file was changed in place. Being replaced by another file does not count."""
        try:
            now = os.stat(self.path)  # noqa: PTH116  pathlib takes long to import
        except OSError:
            return False
        is_other = not os.path.samestat(now, self.status)
        return not is_other and (now.st_size, now.st_mtime_ns) != (self.status.st_size, self.status.st_mtime_ns)


def mapped(file: BinaryIO) -> MappedFile:
    """Map a whole file. Raises OSError if that is impossible, as for an empty file or a pipe."""
    try:
        status = os.fstat(file.fileno())
        made = MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # a ValueError: the file is empty
        number = error.errno if isinstance(error, OSError) else errno.ENODEV
        raise OSError(number, "cannot be mapped into memory: give a regular file", file.name) from None
    made.path = os.path.abspath(file.name)  # noqa: PTH100  pathlib takes long to import
    made.status = status
    return made


def contents_of(file: BinaryIO) -> memoryview:
    """Return the bytes of a compiled list.

    A small file is copied into memory, so later changes to it do no harm; a large one is mapped.

    Raises OSError if the file cannot be read or is not a regular file.
    """
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size < READ_BELOW:
        return memoryview(mapped(file))
    room = mmap.mmap(-1, status.st_size)  # starts at a page, as a mapped file does
    view = memoryview(room)
    at = 0
    while at < len(view) and (count := file.readinto(view[at:])):  # type: ignore[attr-defined]  # BinaryIO lacks it
        at += count
    return view[:at].toreadonly()


class Contents(NamedTuple):
    """The contents of a compiled list."""

    network: str
    """Name of the network."""
    table: WatchTable
    """The table. It uses the image in the file."""
    labels: EntryLabels
    """The labels."""
    accounts: Accounts
    """The accounts."""


class _Sections(NamedTuple):
    """The sections of a compiled list."""

    image: memoryview
    labels: memoryview
    accounts: memoryview
    network: memoryview


def _starts(sizes: Iterable[int]) -> list[int]:
    """Return the offset of each section, and of the digest at the end."""
    starts = [_HEADER.size]
    for size in sizes:
        starts.append(starts[-1] + -(-size // _ALIGNED) * _ALIGNED)
    return starts


def _sections(raw: memoryview) -> _Sections:
    """Return the sections of a file. Raises FormatError unless the header is sound and the sizes match the file."""
    if len(raw) < _HEADER.size:
        raise FormatError(f"truncated: expected {_HEADER.size} bytes, {len(raw)} left", offset=0, field="header")
    magic, version, named, size, *sizes = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise FormatError("not a compiled watch list", offset=0, field="magic")
    if version != _VERSION:
        why = f"unsupported version {version} (only version {_VERSION} is supported): rebuild the file"
        raise FormatError(why, offset=8, field="version")
    if size != len(raw):
        why = f"{size:,} bytes, but the file is {len(raw):,} bytes long: it is truncated or damaged; rebuild it"
        raise FormatError(why, offset=16, field="size")
    *starts, end = _starts((*sizes, named))
    if named > _MOST_NAME or end + _DIGEST_SIZE != size:
        why = "the sizes of the sections do not match the size of the file: rebuild it"
        raise FormatError(why, offset=16, field="size")
    return _Sections(*(raw[at : at + length] for at, length in zip(starts, (*sizes, named), strict=True)))


def parsed(raw: memoryview) -> Contents:
    """Return the contents of a compiled list. Raises FormatError for a malformed file."""
    found = _sections(raw)
    try:
        network = bytes(found.network).decode("ascii")
    except UnicodeDecodeError:
        raise FormatError("the name is not ASCII", offset=12, field="network") from None
    table = WatchTable(found.image)
    return Contents(network, table, _labels(found.labels, len(table)), _accounts(found.accounts, len(table)))


def _labels(raw: memoryview, entries: int) -> EntryLabels:
    """Return the labels. Raises FormatError unless the entry numbers and the offsets of the texts ascend."""
    count = _NUMBER.unpack_from(raw)[0] if len(raw) >= 4 else -1
    if count < 0 or 4 + 8 * count > len(raw):
        raise FormatError("truncated: the section is shorter than its entries and texts", offset=0, field="labels")
    numbers, texts = raw[4 : 4 + 8 * count].cast("I"), len(raw) - 4 - 8 * count
    labelled, ends = numbers[:count], numbers[count:]
    last, end = (labelled[-1], ends[-1]) if count else (-1, 0)
    is_sound = last < entries and end == texts and (not count or ends[0] > 0)
    if not is_sound or not is_ascending(labelled) or not is_ascending(ends):
        raise FormatError("the entries or texts are out of order", offset=4, field="labels")
    return EntryLabels(labelled, ends, raw[4 + 8 * count :])


def _accounts(raw: memoryview, entries: int) -> Accounts:
    """Return the accounts. Raises FormatError if bytes are malformed, a name is invalid, or runs are out of order."""
    made, at = Accounts(), 4
    try:
        (names,) = _NUMBER.unpack_from(raw)
        for _ in range(names):
            (size,) = _NUMBER.unpack_from(raw, at)
            name = checked_name(bytes(raw[at + 4 : at + 4 + size]).decode())
            if name in made.names or at + 4 + size > len(raw):
                raise ParameterError("a name occurs twice")
            made.names[name] = None
            at += 4 + size
        runs = RUN.iter_unpack(raw[at:])
    except (struct.error, ParameterError, UnicodeDecodeError):
        raise FormatError("the names are damaged", offset=at, field="accounts") from None
    next_entry = 0
    for first, count, name_number in runs:
        if first < next_entry or not 0 < count <= entries - first or name_number >= len(made.names):
            raise FormatError("the runs of entries are out of order", offset=at, field="accounts")
        next_entry = first + count
    made.entries = EntryAccounts(raw[at:], list(made.names))
    return made


# Writing


def _packed_labels(labels: Mapping[int, str]) -> Pieces:
    """Return the labels as pieces of bytes. Raises ParameterError if they exceed 4 GB."""
    pieces = [piece.cast("B") for piece in packed_texts(labels)]
    return [_NUMBER.pack(len(pieces[0]) // _NUMBER.size), *pieces]


def _packed_accounts(accounts: Accounts) -> Pieces:
    """Return the accounts as pieces of bytes."""
    numbers = {name: number for number, name in enumerate(accounts.names)}
    pieces: Pieces = [_NUMBER.pack(len(numbers))]
    pieces += [_NUMBER.pack(len(raw)) + raw for raw in map(str.encode, numbers)]
    first = count = number = 0
    for entry, name in sorted(accounts.entries.items()):
        if count and (entry, numbers[name]) == (first + count, number):
            count += 1
            continue
        if count:
            pieces.append(RUN.pack(first, count, number))
        first, count, number = entry, 1, numbers[name]
    if count:
        pieces.append(RUN.pack(first, count, number))
    return pieces


def write(
    path: str | os.PathLike[str], network: str, table: WatchTable, labels: Mapping[int, str], accounts: Accounts
) -> None:
    """Write a compiled list, which atomically replaces the file at `path`.

    Raises ParameterError if the labels exceed 4 GB, and OSError if the file cannot be written.
    """
    sections: list[Pieces] = [[new_image(table)], _packed_labels(labels), _packed_accounts(accounts)]
    sections.append([network.encode("ascii")])
    sizes = [_size(pieces) for pieces in sections]
    starts = _starts(sizes)
    digest, at = sha256(), 0
    sections = [[_header(sizes, starts[-1])], *sections, []]
    with replacing(Path(path)) as file:
        for start, pieces in zip((0, *starts), sections, strict=True):
            for piece in (bytes(start - at), *pieces):
                digest.update(piece)
                file.write(piece)
            at = start + _size(pieces)
        file.write(digest.digest())


def _size(pieces: Pieces) -> int:
    return sum(len(piece) for piece in pieces)


def _header(sizes: list[int], end: int) -> bytes:
    return _HEADER.pack(MAGIC, _VERSION, sizes[3], end + _DIGEST_SIZE, *sizes[:3])


def new_image(table: WatchTable) -> memoryview:
    """Return a new image of a table, under a new random key."""
    room = bytearray(table.image_size())
    table.write_image(room, os.urandom(KEY_SIZE))
    return memoryview(room)


def image_of(table: WatchTable) -> memoryview:
    """Return the image that a table was made from, or a new image if the table has changed since then."""
    given = table.image()
    return new_image(table) if given is None else given


def _digest(raw: memoryview) -> bytes:
    digest = sha256()
    for at in range(0, len(raw), _PIECE):
        digest.update(raw[at : at + _PIECE])
    return digest.digest()


# Sharing


class ReplacedListError(Exception):
    """The file of a compiled list was removed or replaced, so another process can no longer map the same list."""


def check_unchanged(table: WatchTable) -> None:
    """Raise SourceError if the image of a table is in a file that was changed in place."""
    check_image(table.image())


def check_image(image: memoryview | None) -> None:
    """Raise SourceError if an image is in a file that was changed in place.

    A table forgets its image when it learns outpoints, so keep the image if you need this check afterwards.
    """
    if image is not None and isinstance(file := image.obj, MappedFile) and file.is_changed():
        raise SourceError(
            f"{file.path} was changed in place during the scan, which may have missed matches: rebuild the list, then "
            "repeat the scan"
        )


class ImagePlace(NamedTuple):
    """The place of a table's image in a file, so that another process can map it."""

    path: str
    """Absolute path of the file."""
    start: int
    """Offset of the image."""
    size: int
    """Size of the image in bytes."""
    head: bytes
    """The header of the image. It contains the image's random key, so no other image begins with it."""

    @classmethod
    def of(cls, table: WatchTable) -> Self | None:
        """Return the place of a table's image, or None if the image is not in a file or the table has changed.

        Raises SourceError if the file was changed in place.
        """
        check_unchanged(table)
        image = table.image()
        if image is None or not isinstance(file := image.obj, MappedFile):
            return None
        return cls.at(file.path, _HEADER.size, image)

    @classmethod
    def at(cls, path: str, start: int, image: memoryview) -> Self:
        """Return the place of an image that starts at byte `start` of a file."""
        return cls(path, start, len(image), bytes(image[:_HEAD]))

    def open(self) -> WatchTable:
        """Map the image, and return its table.

        Raises ReplacedListError if the file was replaced or cannot be read.
        """
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123  pathlib takes long to import
                raw = memoryview(mapped(file))[self.start : self.start + self.size]
        except OSError as error:
            raise ReplacedListError(f"{self.path} cannot be read: {error}") from None
        if len(raw) != self.size or raw[: len(self.head)] != self.head:
            raise ReplacedListError(f"{self.path} was replaced")
        return WatchTable(raw)


# Verification


def verify(path: Path) -> int:
    """Read a whole compiled list, and return the number of its entries.

    Raises WatchFileError if the file is damaged or not a compiled list, and OSError if it cannot be read.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise WatchFileError(str(path), ((0, "not a compiled watch list: build one from this file first"),))
        raw = memoryview(mapped(file))
    try:
        contents = parsed(raw)
        _verify_image(_sections(raw).image, contents.table)
        _verify_labels(contents)
        if _digest(raw[:-_DIGEST_SIZE]) != raw[-_DIGEST_SIZE:]:
            raise FormatError("does not match: the file is damaged", offset=len(raw) - _DIGEST_SIZE, field="digest")
    except FormatError as error:
        raise WatchFileError(str(path), ((0, str(error)),)) from None
    return len(contents.table)


def _verify_image(image: memoryview, table: WatchTable) -> None:
    """Raise FormatError unless an image consists of the bytes that its entries produce."""
    if table.image_size() != len(image):
        raise FormatError("does not match the entries", offset=0, field="size")
    room = bytearray(len(image))
    table.write_image(room, bytes(image[_HEAD - KEY_SIZE : _HEAD]))
    if image != room:
        raise FormatError("it lacks the index of its entries", offset=0, field="image")


def _verify_labels(contents: Contents) -> None:
    """Raise FormatError if a label is not allowed in a list."""
    for at in range(len(contents.labels)):
        text = contents.labels.text(at)
        try:
            sound = checked_label(text.decode()) == text.decode()
        except ValueError:
            sound = False
        if not sound:
            raise FormatError("damaged", offset=at, field="label")
