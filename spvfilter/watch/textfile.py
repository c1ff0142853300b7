"""The text file format of a watch list: one entry per line, for people and programs.

| line | meaning |
|---|---|
| `# text` | a comment; comments and blank lines are skipped |
| `1BoatSLRHtKNngkdXEeobR76b53LETtpyT` | an address |
| `ADDRESS,savings, old` | an address with a label: the text after the first comma |
| `script:HEX,LABEL` | a scriptPubKey |
| `pubkey:HEX,LABEL` | a public key |
| `data:HEX,LABEL` | a data element |
| `wpkh(xpub…/<0;1>/*)#CHECKSUM,LABEL` | an output descriptor; the label follows the comma after the descriptor |
| `zpub…,LABEL` | an extended public key whose prefix names a script type: ypub, zpub, upub, vpub |
| `keychain:END:LOOKAHEAD:DESCRIPTOR` | a descriptor whose window ended at index END when the file was written |
| `bitcoin:ADDRESS?label=TEXT` | the address of a URI (BIP-21); a label after a comma replaces the URI's label |
| `outpoint:TXID:INDEX,LABEL` | an outpoint, with the txid in display order |
| `outpoint:TXID:INDEX:VALUE:SCRIPT` | an outpoint with its value (satoshi) and scriptPubKey; both may be empty |
| `account:NAME` | the entries of the following lines belong to this account, up to the next such line |
| `account:` | the entries of the following lines belong to no account |

For a keychain without a descriptor, the file contains its scripts. The file is UTF-8, with or without a byte order
mark, and its lines end in LF or CRLF. In a line without a label, ` #` starts a comment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Protocol

from spvfilter._public import deferred
from spvfilter.address import script_to_address
from spvfilter.errors import ParameterError, WatchFileError
from spvfilter.files import replacing
from spvfilter.kernel import NO_ENTRY, NO_VALUE, EntryKind, WatchTable
from spvfilter.network import Network
from spvfilter.primitives import OutPoint
from spvfilter.watch import entry as entries
from spvfilter.watch.descriptor.descriptor import is_descriptor
from spvfilter.watch.keychain import Keychain

if TYPE_CHECKING:
    import pathlib
else:
    pathlib = deferred("pathlib")

_ACCOUNT = "account:"
"""Start of the line that begins the entries of an account."""
_CHUNK = 1 << 20
"""Number of bytes that one read of the file requests."""
_TEXT = bytes({*b"\t\n\r", *range(32, 256)})
"""The bytes that occur in text files, in UTF-8 or another character set."""
_MAX_LINE = 8_100_000
"""Largest length of a line in bytes. It fits a scriptPubKey of 4,000,000 bytes, the size of a block, in hex."""


class Sink(entries.Sink, Protocol):
    """An object to which the entries of a file can be added, such as a WatchList.

    Its methods raise ParameterError for an invalid entry.
    """

    def add_script(self, script_pubkey: bytes, label: str | None = None) -> None: ...
    def add_pubkey(self, pubkey: bytes, label: str | None = None) -> None: ...
    def add_data(self, data: bytes, label: str | None = None) -> None: ...
    def add_outpoint(
        self,
        outpoint: OutPoint | str,
        label: str | None = None,
        *,
        value: int | None = None,
        script_pubkey: bytes | None = None,
    ) -> None: ...
    def add_address_lines(self, chunk: bytes, at: int) -> tuple[int, int]: ...
    def add_saved_keychain(self, text: str, label: str | None, end: int, lookahead: int) -> None: ...
    def begin_account(self, name: str | None) -> None: ...


class Source(Protocol):
    """An object whose entries can be written to a file, such as a WatchList."""

    @property
    def network(self) -> Network: ...
    @property
    def table(self) -> WatchTable: ...
    def entries(self) -> Iterator[tuple[EntryKind, bytes, str | None]]: ...
    @property
    def keychains(self) -> tuple[Keychain, ...]: ...
    def keychain_of(self, entry: int) -> tuple[Keychain, int] | None: ...
    def own_label(self, entry: int) -> str | None: ...
    @property
    def accounts(self) -> tuple[str, ...]: ...
    def account(self, entry: int) -> str | None: ...
    def __contains__(self, script_pubkey: bytes) -> bool: ...


def load(watch: Sink, path: str | os.PathLike[str]) -> None:
    """Add the entries of the file at `path` to `watch`.

    Raises WatchFileError if lines are invalid, and OSError if the file cannot be read.
    """
    path = pathlib.Path(path)
    with path.open("rb") as file:
        read_into(watch, file, str(path))


def read_into(watch: Sink, file: BinaryIO, name: str) -> None:
    """Add the entry of every line of a file to `watch`. `name` is the file's name for error messages.

    Raises WatchFileError, which lists all invalid lines, and OSError if the file cannot be read.
    """
    problems: list[tuple[int, str]] = []
    # outpoints with their accounts: their lines may precede those of their scripts
    late: list[tuple[int, str, str | None, str | None]] = []
    account: str | None = None
    for number, line in _other_lines(watch, file, name):
        try:
            if len(line) > _MAX_LINE:
                raise ParameterError(f"the line has more than {_MAX_LINE:,} bytes")
            text = _text(line, number)
            if not text:
                continue
            if text.startswith(_ACCOUNT):
                account = text.removeprefix(_ACCOUNT).strip() or None
                watch.begin_account(account)
                continue
            entry, label = _split(text)
            if entry.startswith("outpoint:"):
                late.append((number, entry, label, account))
            else:
                _add(watch, entry, label)
        except ParameterError as error:
            problems.append((number, str(error)))
    for number, entry, label, account in late:
        try:
            watch.begin_account(account)
            _add_outpoint(watch, entry, label)
        except ParameterError as error:
            problems.append((number, str(error)))
    watch.begin_account(None)
    if problems:
        raise WatchFileError(name, tuple(sorted(problems)))


def _other_lines(watch: Sink, file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """Add the addresses that the kernel's fast path can read, and yield all other lines with their numbers, from 1.

    A line of more than _MAX_LINE bytes may be cut, but its first _MAX_LINE + 1 bytes are always yielded. Raises
    WatchFileError if the file is not text.
    """
    chunk, at, number = b"", 0, 1
    while True:
        taken, lines = watch.add_address_lines(chunk, at)
        at += taken
        number += lines
        end = chunk.find(b"\n", at) + 1
        if not end:
            more = file.read(_CHUNK)
            if not chunk and number == 1 and (why := _no_text(more)) is not None:
                raise WatchFileError(name, ((1, why),))
            if more:
                chunk, at = chunk[at : at + _MAX_LINE + 1] + more, 0
                continue
            if at < len(chunk):
                yield number, chunk[at:]
            return
        yield number, chunk[at:end]
        at = end
        number += 1


def _no_text(start: bytes) -> str | None:
    """Return an error message if the start of a file shows that it is not UTF-8 text. None if it may be text."""
    head = start[:4096]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or (len(head) >= 8 and (any(head[::2]) != any(head[1::2]))):
        return "this file is UTF-16: save it as UTF-8"
    if start.startswith(b"SQLite format 3\0"):
        return "this is an SQLite database, not a watch list: give a wallet's database with --db"
    if len(head.translate(None, _TEXT)) > max(8, len(head) // 10):
        return "this is a binary file, not a watch list: expected text with one entry per line"
    return None


def _text(line: bytes, number: int) -> str:
    """Return a line as text, without white space around it. The text is empty for a comment.

    `number` is the number of the line, from 1: a byte order mark may start the first line. Raises ParameterError for a
    line that is not UTF-8.
    """
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise ParameterError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    return "" if text.startswith("#") else text


def _split(text: str) -> tuple[str, str | None]:
    """Return the entry and the label of a line. The label is None if the line has none."""
    at = _end_of_descriptor(text)
    entry, comma, label = text[at:].partition(",")
    entry = text[:at] + entry
    if not comma:  # a label may contain '#', an entry cannot: without a label, '#' starts a comment
        entry = entry.partition(" #")[0]
    return entry.strip(), label.strip() or None


def _end_of_descriptor(text: str) -> int:
    """Return the offset at which a line's descriptor ends; 0 if the line has no descriptor. It may contain commas."""
    start = len(text) - len(text.split(":", 3)[-1]) if text.startswith("keychain:") else 0
    if not is_descriptor(text[start:]):
        return 0
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if not depth and text[at] == ")":
            return at + 1
    return len(text)


def add(watch: Sink, entry: str, label: str | None = None) -> None:
    """Add one entry to `watch`. The entry has the form of a line of the file, without the comma and the label.

    Raises ParameterError for an invalid entry or label.
    """
    if entry.startswith("outpoint:"):
        _add_outpoint(watch, entry, label)
    else:
        _add(watch, entry, label)


def _add(watch: Sink, entry: str, label: str | None) -> None:
    kind, colon, rest = entry.partition(":")
    if not colon or is_descriptor(entry) or kind.lower() == "bitcoin":
        entries.add_entry(watch, entry, label)
    elif kind == "keychain":
        _add_keychain(watch, rest, label)
    elif kind == "script":
        watch.add_script(_hex(rest), label)
    elif kind == "pubkey":
        watch.add_pubkey(_hex(rest), label)
    elif kind == "data":
        watch.add_data(_hex(rest), label)
    else:
        raise ParameterError(
            entries.explained(entry)
            or "unknown kind of entry before the colon: expected script, pubkey, data, outpoint or keychain, or an "
            "address or a descriptor"
        )


def _add_keychain(watch: Sink, rest: str, label: str | None) -> None:
    end, _, more = rest.partition(":")
    lookahead, _, text = more.partition(":")
    if not all(number.isascii() and number.isdigit() and len(number) < 10 for number in (end, lookahead)):
        raise ParameterError("expected keychain:END:LOOKAHEAD:DESCRIPTOR with two whole numbers")
    watch.add_saved_keychain(text, label, int(end), int(lookahead))


def _add_outpoint(watch: Sink, entry: str, label: str | None) -> None:
    parts = entry.split(":")
    if len(parts) not in (3, 5):
        raise ParameterError(
            f"expected outpoint:TXID:INDEX or outpoint:TXID:INDEX:VALUE:SCRIPT, not {len(parts)} parts"
        )
    value, script = None, None
    if len(parts) == 5:
        if parts[3] and not (parts[3].isascii() and parts[3].isdigit() and len(parts[3]) < 20):
            raise ParameterError("the value of an outpoint must be a whole number of satoshi below 2^63")
        value = int(parts[3]) if parts[3] else None
        script = _hex(parts[4]) if parts[4] else None
    watch.add_outpoint(OutPoint.from_text(f"{parts[1]}:{parts[2]}"), label, value=value, script_pubkey=script)


def _hex(text: str) -> bytes:
    """Return the bytes that a hex string encodes.

    Raises ParameterError for a text that is not hex. The message does not repeat the text, because people paste private
    keys into wrong places.
    """
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ParameterError(f"expected pairs of hex digits, not these {len(text)} characters") from None


def write(watch: Source, path: str | os.PathLike[str]) -> None:
    """Write the whole watch list to a file of mode 0600, which atomically replaces the file at `path`."""
    with replacing(pathlib.Path(path)) as file:
        file.write(f"# spvfilter watch list, {watch.network}\n".encode())
        file.writelines(f"{line}\n".encode() for line in _lines(watch))


def _lines(watch: Source) -> Iterator[str]:
    """Yield the lines of entries without an account, then the lines of each account."""
    owned: dict[str, list[str]] = {name: [] for name in watch.accounts}
    for account, line in _owned_lines(watch):
        if account is None:
            yield line
        else:
            owned[account].append(line)
    for name, lines in owned.items():
        yield f"{_ACCOUNT}{name}"
        yield from lines


def _owned_lines(watch: Source) -> Iterator[tuple[str | None, str]]:
    """Yield the account and the line of each entry."""
    # keychains and keys come first: they label their scripts, and the line of a script then replaces its label
    for keychain in watch.keychains:
        if keychain.descriptor is not None:
            tail = f",{keychain.label}" if keychain.label else ""
            text = f"keychain:{keychain.end}:{keychain.lookahead}:{keychain.descriptor}{tail}"
            yield keychain.account, text
    for number, (kind, value, label) in sorted(
        enumerate(watch.entries()), key=lambda entry: entry[1][0] != EntryKind.MULTISIG_KEY
    ):
        place, account = watch.keychain_of(number), watch.account(number)
        is_derived = place is not None and place[0].descriptor is not None and place[0].account == account
        if is_derived and watch.own_label(number) is None:
            continue
        tail = f",{label}" if label else ""
        match kind:
            case EntryKind.SCRIPT:
                yield account, (script_to_address(value, watch.network) or f"script:{value.hex()}") + tail
            case EntryKind.MULTISIG_KEY:
                yield account, f"pubkey:{value.hex()}{tail}"
            case EntryKind.DATA:
                yield account, f"data:{value.hex()}{tail}"
            case EntryKind.OUTPOINT:
                pass  # written below with its value and script
    labels = {value: label for kind, value, label in watch.entries() if kind == EntryKind.OUTPOINT}
    for point, coin in watch.table.coins():
        known = ""
        entry = watch.table.find(EntryKind.OUTPOINT, point)
        account = None if entry == NO_ENTRY else watch.account(entry)
        if point in labels and not labels[point] and coin.script and coin.script in watch:
            # the user added this outpoint: without this line, the next one would read as a learned outpoint
            yield account, f"outpoint:{OutPoint.parse(point)}"
        if coin.value != NO_VALUE or coin.script is not None:
            known = f":{'' if coin.value == NO_VALUE else coin.value}:{(coin.script or b'').hex()}"
        tail = f",{labels[point]}" if labels.get(point) else ""
        yield account, f"outpoint:{OutPoint.parse(point)}{known}{tail}"
