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
| 32 | SHA-256 of all bytes before |

The header is little-endian. Numbers in the sections have the byte order of the machine, which the image states. A
section starts at a multiple of 64 bytes, and zeros fill the gaps.

A compiled list may come from an attacker. Loading it checks the header, the sizes of the sections, the outpoints and
the accounts. The entries and labels are read only when they match. No contents can make that read other memory or run
on, but wrong contents can hide entries. `verify` reads everything.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, MutableMapping
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self
from unicodedata import category

from spvfilter.errors import FormatError, ParameterError, SourceError, WatchFileError
from spvfilter.files import replacing
from spvfilter.kernel import WatchTable
from spvfilter.watch.accounts import Accounts, checked_name
from spvfilter.watch.arguments import checked_label

MAGIC = b"\x89SPVWL\r\n"
"""The first bytes of a compiled watch list."""
KEY_SIZE = 64
"""Size of the random key of an image, in bytes."""
_VERSION = 1
_HEADER = struct.Struct("<8sIIQQQQ16x")
_NUMBER = struct.Struct("=I")
_RUN = struct.Struct("=III")
_ALIGNED = 64
_DIGEST_SIZE = 32
_MOST_NAME = 30_000  # Characters of a network's name; a custom signet has its challenge in it (our choice).
_MOST_TEXTS = 0xFFFFFFFF  # Bytes of all labels together.
_MOST_LABEL = 8_100_000  # Bytes of one label: the longest line of a text file.
_HEAD = 192  # Bytes of an image's header, which ends with the key.
Pieces = list[bytes | memoryview]
_PIECE = 1 << 24  # Bytes that are hashed at once.


class MappedFile(mmap.mmap):
    """A mapped file that knows its path."""

    path: str
    """Absolute path of the file."""


def mapped(file: BinaryIO) -> MappedFile:
    """Map a whole file. Raises OSError if it cannot be mapped, such as an empty file or a pipe."""
    try:
        made = MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # a ValueError: the file is empty
        number = error.errno if isinstance(error, OSError) else errno.ENODEV
        raise OSError(number, "cannot be mapped into memory: give a regular file", file.name) from None
    made.path = os.path.abspath(file.name)  # noqa: PTH100  pathlib takes long to import
    return made


class EntryLabels(MutableMapping[int, str]):
    """The labels of a compiled list by the number of the entry, with later changes. A text is decoded when it is read.

    Characters that a label must not contain are replaced by U+FFFD.
    """

    def __init__(self, raw: memoryview, changed: dict[int, str | None] | None = None) -> None:
        count = _NUMBER.unpack_from(raw)[0]
        self._raw = raw
        self._entries = raw[4 : 4 + 4 * count].cast("I")
        self._ends = raw[4 + 4 * count : 4 + 8 * count].cast("I")
        self._texts = raw[4 + 8 * count :]
        self._changed: dict[int, str | None] = {} if changed is None else changed  # None: the label was removed

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)(self._raw, self._changed.copy())

    def __getitem__(self, entry: int) -> str:
        if entry in self._changed:
            label = self._changed[entry]
        else:
            at = bisect_left(self._entries, entry) if 0 <= entry < 1 << 32 else len(self._entries)
            found = at < len(self._entries) and self._entries[at] == entry
            label = _shown(self.text(at)) if found else None
        if not label:
            raise KeyError(entry)
        return label

    def text(self, at: int) -> bytes:
        """Return the text of label number `at`, as it is in the file."""
        start = self._ends[at - 1] if at else 0
        return bytes(self._texts[start : min(self._ends[at], start + _MOST_LABEL)])

    def end(self, at: int) -> int:
        """Return the offset at which label number `at` ends."""
        return self._ends[at]

    def __setitem__(self, entry: int, label: str) -> None:
        self._changed[entry] = label

    def __delitem__(self, entry: int) -> None:
        if entry not in self:
            raise KeyError(entry)
        self._changed[entry] = None

    def __iter__(self) -> Iterator[int]:
        changed = self._changed
        yield from (entry for entry in self._entries if entry not in changed)
        yield from (entry for entry, label in changed.items() if label is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _shown(text: bytes) -> str:
    label = text.decode("utf-8", "replace")
    if label.isprintable():
        return label
    return "".join("\ufffd" if category(each) in ("Cc", "Cs", "Zl", "Zp") else each for each in label)


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
    """Return the sections of a file. Raises FormatError unless the header is sound and the sizes fill the file."""
    if len(raw) < _HEADER.size:
        raise FormatError(f"truncated: {_HEADER.size} bytes wanted, {len(raw)} left", offset=0, field="header")
    magic, version, named, size, *sizes = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise FormatError("not a compiled watch list", offset=0, field="magic")
    if version != _VERSION:
        why = f"{version}, but this version of spvfilter reads {_VERSION}: build the file again"
        raise FormatError(why, offset=8, field="version")
    if size != len(raw):
        why = f"{size:,} bytes, but the file has {len(raw):,}: it is truncated or damaged, build it again"
        raise FormatError(why, offset=16, field="size")
    *starts, end = _starts((*sizes, named))
    if named > _MOST_NAME or end + _DIGEST_SIZE != size:
        raise FormatError("the sections do not fill the file: build it again", offset=16, field="size")
    return _Sections(*(raw[at : at + length] for at, length in zip(starts, (*sizes, named), strict=True)))


def parsed(raw: memoryview) -> Contents:
    """Return the contents of a compiled list. Raises FormatError for a malformed file."""
    found = _sections(raw)
    try:
        network = bytes(found.network).decode("ascii")
    except UnicodeDecodeError:
        raise FormatError("not a name in ASCII", offset=12, field="network") from None
    table = WatchTable(found.image)
    return Contents(network, table, _labels(found.labels), _accounts(found.accounts, len(table)))


def _labels(raw: memoryview) -> EntryLabels:
    count = _NUMBER.unpack_from(raw)[0] if len(raw) >= 4 else -1
    if not 0 <= 4 + 8 * count <= len(raw) or count < 0:
        raise FormatError("truncated: the entries and texts do not fit", offset=0, field="labels")
    return EntryLabels(raw)


def _accounts(raw: memoryview, entries: int) -> Accounts:
    """Return the accounts. Raises FormatError for malformed bytes, wrong names, and runs that are not in order."""
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
        runs = list(_RUN.iter_unpack(raw[at:]))
    except (struct.error, ParameterError, UnicodeDecodeError):
        raise FormatError("damaged names", offset=at, field="accounts") from None
    listed, next_entry = list(made.names), 0
    for first, count, name_number in runs:
        if first < next_entry or not 0 < count <= entries - first or name_number >= len(listed):
            raise FormatError("a run of entries is not in order", offset=at, field="accounts")
        next_entry = first + count
        made.entries.update(dict.fromkeys(range(first, next_entry), listed[name_number]))
    return made


# Writing


def _packed_labels(labels: Iterable[tuple[int, str]]) -> Pieces:
    """Return the labels as pieces of bytes. Raises ParameterError for more than 4 GB of labels."""
    entries, ends, texts = array("I"), array("I"), bytearray()
    for entry, label in sorted(labels):
        texts += label.encode()
        if len(texts) > _MOST_TEXTS:
            raise ParameterError("the labels have more than 4 GB together: shorten them")
        entries.append(entry)
        ends.append(len(texts))
    return [_NUMBER.pack(len(entries)), entries.tobytes(), ends.tobytes(), bytes(texts)]


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
            pieces.append(_RUN.pack(first, count, number))
        first, count, number = entry, 1, numbers[name]
    if count:
        pieces.append(_RUN.pack(first, count, number))
    return pieces


def write(
    path: str | os.PathLike[str], network: str, table: WatchTable, labels: Iterable[tuple[int, str]], accounts: Accounts
) -> None:
    """Write a compiled list, which atomically replaces the file at `path`.

    Raises ParameterError for more than 4 GB of labels, and OSError if the file cannot be written.
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
    """Return the image that a table was made from, if the table has not changed. Otherwise return a new image."""
    given = table.image()
    return new_image(table) if given is None else given


def _digest(raw: memoryview) -> bytes:
    digest = sha256()
    for at in range(0, len(raw), _PIECE):
        digest.update(raw[at : at + _PIECE])
    return digest.digest()


# Sharing


class ImagePlace(NamedTuple):
    """The place of a table's image in a file, for another process that maps it."""

    path: str
    """Absolute path of the file."""
    start: int
    """Offset of the image."""
    size: int
    """Size of the image in bytes."""
    head: bytes
    """The header of the image. It has the random key of the image, so that no other image begins with it."""

    @classmethod
    def of(cls, table: WatchTable) -> Self | None:
        """Return the place of a table's image. None if no file has it, or if the table has changed."""
        image = table.image()
        if image is None or not isinstance(file := image.obj, MappedFile):
            return None
        return cls.at(file.path, _HEADER.size, image)

    @classmethod
    def at(cls, path: str, start: int, image: memoryview) -> Self:
        """Return the place of an image that a file has from byte `start` on."""
        return cls(path, start, len(image), bytes(image[:_HEAD]))

    def open(self) -> WatchTable:
        """Map the image, and return its table.

        Raises SourceError if the file was replaced or cannot be read.
        """
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123  pathlib takes long to import
                raw = memoryview(mapped(file))[self.start : self.start + self.size]
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read: {error}") from None
        if len(raw) != self.size or raw[: len(self.head)] != self.head:
            raise SourceError(f"{self.path} was replaced during the scan: run the scan again")
        return WatchTable(raw)


# Verification


def verify(path: Path) -> int:
    """Read a whole compiled list, and return the number of its entries.

    Raises WatchFileError for a damaged file or another file, and OSError if the file cannot be read.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise WatchFileError(str(path), ((0, "not a compiled watch list: build one from it first"),))
        raw = memoryview(mapped(file))
    try:
        contents = parsed(raw)
        _verify_image(_sections(raw).image, contents.table)
        _verify_labels(contents)
        if _digest(raw[:-_DIGEST_SIZE]) != raw[-_DIGEST_SIZE:]:
            raise FormatError("wrong: the file is damaged", offset=len(raw) - _DIGEST_SIZE, field="digest")
    except FormatError as error:
        raise WatchFileError(str(path), ((0, str(error)),)) from None
    return len(contents.table)


def _verify_image(image: memoryview, table: WatchTable) -> None:
    """Raise FormatError unless an image has the bytes that its entries give."""
    if table.image_size() != len(image):
        raise FormatError("not that of its entries", offset=0, field="size")
    room = bytearray(len(image))
    table.write_image(room, bytes(image[_HEAD - KEY_SIZE : _HEAD]))
    if image != room:
        raise FormatError("it does not have the index of its entries", offset=0, field="image")


def _verify_labels(contents: Contents) -> None:
    """Raise FormatError for labels that are not in order, or that a list must not contain."""
    labels, before, end = contents.labels, -1, 0
    for at, entry in enumerate(labels):
        text = labels.text(at)
        try:
            sound = checked_label(text.decode()) == text.decode()
        except ValueError:
            sound = False
        end += len(text)
        if not (before < entry < len(contents.table) and sound and labels.end(at) == end):
            raise FormatError("damaged", offset=at, field="label")
        before = entry
