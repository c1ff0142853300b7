"""The text format of watch list files, for people and programs: one entry per line.

| line | meaning |
|---|---|
| `# text` | a comment; comments and blank lines are skipped |
| `1BoatSLRHtKNngkdXEeobR76b53LETtpyT` | an address |
| `ADDRESS,savings, old` | an address with a label: the text after the first comma |
| `script:HEX,LABEL` | a scriptPubKey |
| `pubkey:HEX,LABEL` | a public key |
| `data:HEX,LABEL` | a data element |
| `wpkh(xpub…/<0;1>/*)#CHECKSUM,LABEL` | an output descriptor; the label follows the first comma after it |
| `zpub…,LABEL` | an extended public key whose prefix names a script type: ypub, zpub, upub, vpub |
| `keychain:END:LOOKAHEAD:DESCRIPTOR` | a descriptor whose window ended at index END when the file was written |
| `bitcoin:ADDRESS,LABEL` | the address of a URI (BIP-21, BIP-321) |
| `bitcoin:ADDRESS?label=a,b&bc=ADDRESS` | a URI with parameters, in which a comma is part of the URI |
| `outpoint:TXID:INDEX,LABEL` | an outpoint, with the txid in display order |
| `outpoint:TXID:INDEX:VALUE:SCRIPT` | an outpoint with its value (satoshi) and scriptPubKey; both may be empty |
| `data-prefix:HEX,LABEL` | OP_RETURN outputs whose first push begins with these bytes; only for scans of blocks |
| `script-type:p2ms,LABEL` | outputs of this type of script; only for scans of blocks |
| `sp(spscan1…),LABEL` | a silent payment wallet (BIP-392); the file contains its private scan key, so keep it secret |
| `sp-label:N,LABEL` | label number N of the silent payment address in the preceding `sp(…)` line |
| `sp-labels:N` | search for all labels of that address up to number N |
| `sp-output:SCRIPT:TWEAK:N,LABEL` | a silent payment that has been found; N is the number of its label, or empty |
| `account:NAME` | the entries on the following lines, up to the next such line, belong to this account |
| `account:` | the entries on the following lines belong to no account |

If a keychain has no descriptor, the file contains its scripts. `save` writes the lines of silent payments only with
`secrets=True`. Otherwise, it writes the scripts that were found, and a comment with the public keys.

The file is UTF-8, with or without a byte order mark, and its lines end in LF or CRLF. In a line without a label, ` #`
starts a comment. A label with line breaks or other control characters is written as a JSON string, with quotes and
escapes.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import BinaryIO, Protocol

from spvfilter import compression
from spvfilter.address import script_to_address
from spvfilter.errors import FormatError, ParameterError, SourceError, WatchFileError
from spvfilter.files import replacing
from spvfilter.kernel import NO_ENTRY, NO_VALUE, PATTERN_KINDS, EntryKind, WatchTable
from spvfilter.network import Network
from spvfilter.primitives import OutPoint
from spvfilter.watch import compiled, entry as entries, patterns, silentkeychain
from spvfilter.watch.arguments import check_not_private, label_line, label_of_line
from spvfilter.watch.descriptor.descriptor import is_descriptor, is_silent_text
from spvfilter.watch.descriptor.keys import is_extended_key
from spvfilter.watch.imports import adding, binary, policy, recognition
from spvfilter.watch.imports.walletfile import WalletFile
from spvfilter.watch.keychain import MAX_DERIVATIONS, Budget, Keychain
from spvfilter.watch.silentkeychain import Found, SilentKeychain
from spvfilter.watch.windows import Windows, is_silent

_ACCOUNT = "account:"
"""Start of the line that begins the entries of an account."""
_LABEL_DIGITS = 10  # of the largest number of a label
_SP_LABEL, _SP_LABELS, _SP_OUTPUT = "sp-label:", "sp-labels:", "sp-output:"
"""How the lines after an sp() descriptor start."""
CHUNK = 1 << 22
"""Number of bytes that one read of the file requests."""
_MOST_PROBLEMS = 1_000
"""Number of invalid lines after which reading a file stops (our choice)."""
MAX_UNPACKED = 1_000_000_000
"""Largest size of a compressed watch list after decompression, in bytes (our choice): 20 million addresses."""
_BLANK = re.compile(rb"[ \t\r\f\v\n]*\n")
_ADDRESS_LIKE = re.compile(r"[A-Za-z0-9]{20}")
MAX_LINE = 8_100_000
"""Largest length of a line in bytes: enough for a scriptPubKey of 4,000,000 bytes, the size of a block, in hex."""


class LineSink(entries.EntrySink, Protocol):
    """An object to which the entries of a file can be added, such as a WatchList.

    Its methods raise ParameterError for an invalid entry.
    """

    def add_script(self, script_pubkey: bytes, label: str | None = None) -> None: ...
    def add_pubkey(self, pubkey: bytes, label: str | None = None) -> None: ...
    def add_data(self, data: bytes, label: str | None = None) -> None: ...
    def add_data_prefix(self, prefix: bytes, label: str | None = None) -> None: ...
    def add_script_type(self, name: str, label: str | None = None) -> None: ...
    def add_outpoint(
        self,
        outpoint: OutPoint | str,
        label: str | None = None,
        *,
        value: int | None = None,
        script_pubkey: bytes | None = None,
    ) -> None: ...
    def add_address_lines(self, chunk: bytes, at: int) -> tuple[int, int]: ...
    def keychains_in(self, text: str, label: str | None = None) -> list[Keychain]: ...
    def saved_keychains_in(self, text: str, label: str | None, end: int, lookahead: int) -> list[Keychain]: ...
    def watch_keychains(self, keychains: Iterable[Keychain], budget: Budget) -> None: ...
    def begin_account(self, name: str | None) -> None: ...
    def take_compiled(self, contents: compiled.Contents) -> None: ...
    def add_payments(self, payments: Iterable[tuple[str, bytes, Found]]) -> list[bytes]: ...
    def add_entry(self, kind: EntryKind, value: bytes, label: str | None = None) -> int: ...
    @property
    def windows(self) -> Windows: ...
    def __contains__(self, script_pubkey: bytes) -> bool: ...
    def __len__(self) -> int: ...


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


def load(
    watch: LineSink,
    path: str | os.PathLike[str],
    max_derivations: int = MAX_DERIVATIONS,
    *,
    allows_patterns: bool = True,
) -> WalletFile | None:
    """Add the entries of a file to `watch`, and return the contents of a wallet file, or None for a watch list.

    `watch` must be empty if the file is a compiled list, which is mapped into memory. Data prefixes and script types
    are invalid unless `allows_patterns` is True.

    Raises WatchFileError if lines are invalid or the file needs more than `max_derivations` key derivations, and
    OSError if the file cannot be read.
    """
    path = pathlib.Path(path)
    with path.open("rb") as file:
        if file.seekable() and file.peek(len(compiled.MAGIC)).startswith(compiled.MAGIC):
            _take_compiled(watch, file, str(path), allows_patterns)
            return None
        return read_into(watch, file, str(path), max_derivations, allows_patterns=allows_patterns)


def _take_compiled(watch: LineSink, file: BinaryIO, name: str, allows_patterns: bool) -> None:
    """Load a compiled list into `watch`, which must be empty. Raises WatchFileError."""
    try:
        contents = compiled.parsed(compiled.contents_of(file))
        if not allows_patterns and any(contents.table.count_of(kind) for kind in PATTERN_KINDS):
            raise ParameterError(f"{patterns.KINDS} work only in `spvfilter scan`: build the list without them")
        watch.take_compiled(contents)
    except (FormatError, ParameterError) as error:
        raise WatchFileError(name, ((0, str(error)),)) from None


def read_into(
    watch: LineSink,
    file: BinaryIO,
    name: str,
    max_derivations: int = MAX_DERIVATIONS,
    *,
    allows_patterns: bool = True,
) -> WalletFile | None:
    """Add the entry on each line of a file to `watch`, or the contents of a file that a wallet exported.

    `name` is the file's name for error messages. The file may be compressed with gzip or zstd. Returns the contents of
    a wallet file, or None for a watch list.

    Raises WatchFileError if lines are invalid or the file needs more than `max_derivations` key derivations; the error
    lists the first 1,000 invalid lines. Raises OSError if the file cannot be read.
    """
    try:
        reading = _Reading(watch, name, Budget(max_derivations), allows_patterns)
        return _read_plain(watch, compression.unpacked(file, MAX_UNPACKED), name, reading)
    except SourceError as error:
        raise WatchFileError(name, ((0, str(error)),)) from None


def _read_plain(watch: LineSink, file: BinaryIO, name: str, reading: _Reading) -> WalletFile | None:
    """Do the work of `read_into` for a file that has been decompressed."""
    start = file.read(CHUNK)
    if start.startswith(compiled.MAGIC):
        raise WatchFileError(
            name, ((0, "a compiled watch list is mapped into memory: give the path of a regular file"),)
        )
    if (why := binary.refusal_of(start)) is not None:
        raise WatchFileError(name, ((0, why),))
    if b"\r" in start and b"\n" not in start:  # the line endings of old Macs
        start += file.read(recognition.MAX_FILE + 1 - len(start))
        if len(start) > recognition.MAX_FILE:
            raise WatchFileError(name, ((0, "the lines end in CR alone: save the file with LF or CRLF line endings"),))
        start = start.replace(b"\r", b"\n")
    if recognition.is_candidate(start):
        start += file.read(recognition.MAX_FILE + 1 - len(start))
        try:
            wallet = recognition.parse_wallet(start)
        except ParameterError as error:
            raise WatchFileError(name, ((0, str(error)),)) from None
        if wallet is not None:
            adding.add_wallet(watch, wallet, name, reading.budget)
            return wallet
    try:
        for number, line in _other_lines(watch, file, start):
            reading.take(number, line)
            if reading.is_refused:
                break
        reading.end()
    finally:
        watch.begin_account(None)
    return None


def add_wallet_file(watch: LineSink, path: str | os.PathLike[str]) -> None:
    """Add the contents of a wallet's exported file to `watch`.

    Raises WatchFileError if it is not such a file, and OSError if it cannot be read.
    """
    adding.add_wallet(watch, recognition.read_wallet_file(path), str(path), Budget(MAX_DERIVATIONS))


_PostponedEntry = tuple[int, str, str | None, str | None]  # number of a line, its entry, its label and its account


class _Reading:
    """The state while one file is read: its invalid lines, and the lines whose entries are added at the end."""

    def __init__(self, watch: LineSink, name: str, budget: Budget, allows_patterns: bool) -> None:
        self._watch = watch
        self._name = name
        self.budget = budget
        self._allows_patterns = allows_patterns
        self._account: str | None = None  # account of the next lines
        self._problems: list[tuple[int, str]] = []
        self._lines = 0  # number of lines that were read, without comments
        self._has_entry = False
        """True if any line so far is an entry or looks like one."""
        self._descriptors: list[_PostponedEntry] = []  # the key derivations of all of them are counted first
        self._outpoints: list[_PostponedEntry] = []  # their lines may precede those of their scripts
        self._silent: dict[int, list[_PostponedEntry]] = {}
        """The `sp-label:`, `sp-labels:` and `sp-output:` lines of each sp() descriptor, by its line number."""

    def take(self, number: int, line: bytes) -> None:
        """Read one line. `number` is its number, from 1."""
        try:
            if len(line) > MAX_LINE:
                raise ParameterError(f"the line is longer than {MAX_LINE:,} bytes")
            text = _text(line, number)
            if not text:
                return
            self._lines += 1
            if text.startswith(_ACCOUNT):
                self._has_entry = True
                self._account = text.removeprefix(_ACCOUNT).strip() or None
                self._watch.begin_account(self._account)
                return
            entry, label = split_line(text)
            self._has_entry = self._has_entry or _looks_like_entry(entry)
            check_not_private(label)
            if not self._allows_patterns and patterns.is_pattern(entry):
                raise ParameterError(f"{patterns.KINDS} work only in `spvfilter scan`: delete the line")
            if entry.startswith("outpoint:"):
                self._outpoints.append((number, entry, label, self._account))
            elif entry.startswith((_SP_LABEL, _SP_LABELS, _SP_OUTPUT)):
                if not self._silent:
                    raise ParameterError(f"{entry.partition(':')[0]} needs an sp(…) line before it")
                self._silent[max(self._silent)].append((number, entry, label, self._account))
            elif _has_keys(entry):
                self._descriptors.append((number, entry, label, self._account))
                if is_silent_text(entry):
                    self._silent[number] = []
            else:
                _add(self._watch, entry, label)
        except ParameterError as error:
            self._problems.append((number, str(error)))

    @property
    def is_refused(self) -> bool:
        """True if the limit on invalid lines has been reached, so no more lines are read."""
        return len(self._problems) >= _MOST_PROBLEMS

    def end(self) -> None:
        """Add the descriptors and the outpoints. Raises WatchFileError if any line of the file was invalid."""
        if not self._has_entry and not len(self._watch) and len(self._problems) == self._lines > 1:
            raise WatchFileError(self._name, ((0, _foreign(self._problems[0][1])),))
        count = 0
        found: list[tuple[int, list[Keychain], str | None]] = []
        for number, entry, label, account in self._descriptors:
            if self.is_refused:
                break
            try:
                keychains = _keychains(self._watch, entry, label)
            except ParameterError as error:
                self._problems.append((number, str(error)))
                continue
            count += sum(each.derivations() for each in keychains)
            try:
                self.budget.check(count)
            except ParameterError as error:
                raise WatchFileError(self._name, ((number, str(error)),)) from None
            self._declare(keychains, self._silent.get(number, ()))
            found.append((number, keychains, account))
        if not self._problems:  # else the list is of no use, and nothing needs to be derived
            for number, keychains, account in found:
                self._try(number, account, partial(self._watch.watch_keychains, keychains, self.budget))
                for line, entry, label, _ in self._silent.get(number, ()):
                    if entry.startswith(_SP_OUTPUT):
                        self._try(line, account, partial(_add_payment, self._watch, keychains[0].name, entry, label))
        with self._watch.windows.limited_by(self.budget):
            for number, entry, label, account in self._outpoints:
                self._try(number, account, partial(_add_outpoint, self._watch, entry, label))
        if self.is_refused:
            last = max(self._problems)[0]
            what = f"the rest of the file was not read after {_MOST_PROBLEMS:,} invalid lines"
            self._problems.append((last + 1, what))
        if self._problems:
            raise WatchFileError(self._name, tuple(sorted(self._problems)))

    def _declare(self, keychains: list[Keychain], lines: Iterable[_PostponedEntry]) -> None:
        """Declare the labels on the lines that follow an sp() descriptor."""
        for number, entry, label, _ in lines:
            try:
                for each in filter(is_silent, keychains):
                    if entry.startswith(_SP_LABEL):
                        each.declare(_number(entry.removeprefix(_SP_LABEL)), label)
                    elif entry.startswith(_SP_LABELS):
                        each.search_to(_number(entry.removeprefix(_SP_LABELS)))
            except ParameterError as error:
                self._problems.append((number, str(error)))

    def _try(self, number: int, account: str | None, add: Callable[[], None]) -> None:
        if self.is_refused:
            return
        try:
            self._watch.begin_account(account)
            add()
        except ParameterError as error:
            self._problems.append((number, str(error)))


def _looks_like_entry(entry: str) -> bool:
    return _has_keys(entry) or entries.is_uri(entry) or entries.is_kind(entry) or bool(_ADDRESS_LIKE.match(entry))


def _foreign(first: str) -> str:
    """Return the error message for a file without a single entry. `first` is the message about its first line."""
    return (
        "this file contains no watch list entry. Expected one address or descriptor on each line, or one of"
        f" these kinds of wallet file: {recognition.KINDS}. Its first line: {first}"
    )


def _other_lines(watch: LineSink, file: BinaryIO, start: bytes) -> Iterator[tuple[int, bytes]]:
    """Add the addresses that the kernel's fast path can read, and yield all other lines, numbered from 1.

    `start` contains the bytes that have already been read. A line of more than MAX_LINE bytes may be cut, but its
    first MAX_LINE + 1 bytes are always yielded.
    """
    chunk, at, number = start, 0, 1
    is_fast = True
    while True:
        taken = lines = 0
        if is_fast:
            try:
                taken, lines = watch.add_address_lines(chunk, at)
            except ParameterError:  # of a label: the reader of single lines finds it again and names its line
                is_fast = False
        at += taken
        number += lines
        if (blank := _BLANK.match(chunk, at)) is not None:
            number += chunk.count(b"\n", at, blank.end())
            at = blank.end()
            continue
        end = chunk.find(b"\n", at) + 1
        if not end:
            more = file.read(CHUNK)
            if more:
                chunk, at = chunk[at : at + MAX_LINE + 1] + more, 0
                continue
            if at < len(chunk):
                yield number, chunk[at:]
            return
        yield number, chunk[at:end]
        at = end
        number += 1


def _text(line: bytes, number: int) -> str:
    """Return a line as text, without white space around it. The text is empty for a comment.

    `number` is the number of the line, from 1: a byte order mark may start the first line. Raises ParameterError if the
    line is not UTF-8.
    """
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise ParameterError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    return "" if text.startswith("#") else text


def split_line(text: str) -> tuple[str, str | None]:
    """Return the entry and the label of a line. The label is None if the line has none."""
    if entries.is_uri(text) and "?" in text:
        return text.partition(" #")[0].strip(), None
    at = _end_of_descriptor(text)
    entry, comma, label = text[at:].partition(",")
    entry = text[:at] + entry
    if not comma:  # a label may contain '#', an entry cannot: without a label, '#' starts a comment
        entry = entry.partition(" #")[0]
    return entry.strip(), label_of_line(label.strip()) or None


def _end_of_descriptor(text: str) -> int:
    """Return the offset at which a line's descriptor, which may contain commas, ends, or 0 if there is none."""
    start = len(text) - len(text.split(":", 3)[-1]) if text.startswith("keychain:") else 0
    if not is_descriptor(text[start:]):
        return 0
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if not depth and text[at] == ")":
            return at + 1
    return len(text)


def add(watch: LineSink, entry: str, label: str | None = None) -> None:
    """Add one entry to `watch`. `entry` is a line of the file without the comma and the label.

    Raises ParameterError if the entry or the label is invalid.
    """
    if entry.startswith("outpoint:"):
        _add_outpoint(watch, entry, label)
    elif _has_keys(entry):
        watch.watch_keychains(_keychains(watch, entry, label), Budget(MAX_DERIVATIONS))
    else:
        _add(watch, entry, label)


def _has_keys(entry: str) -> bool:
    """Return True if an entry is a descriptor, an extended key or a saved keychain."""
    return entry.startswith("keychain:") or is_descriptor(entry) or is_extended_key(entry)


def _keychains(watch: LineSink, entry: str, label: str | None) -> list[Keychain]:
    """Return the keychains of an entry that contains keys, without watching them yet."""
    if not entry.startswith("keychain:"):
        return watch.keychains_in(policy.without_template(entry) if "/**" in entry else entry, label)
    _, end, lookahead, text = (*entry.split(":", 3), "", "")[:4]
    if not all(number.isascii() and number.isdigit() and len(number) < 10 for number in (end, lookahead)):
        raise ParameterError("expected keychain:END:LOOKAHEAD:DESCRIPTOR, where END and LOOKAHEAD are whole numbers")
    return watch.saved_keychains_in(text, label, int(end), int(lookahead))


def _add(watch: LineSink, entry: str, label: str | None) -> None:
    kind, colon, rest = entry.partition(":")
    if not colon or entries.is_uri(entry):
        entries.add_entry(watch, entry, label)
    elif kind == "script":
        watch.add_script(_hex(rest), label)
    elif kind == "pubkey":
        watch.add_pubkey(_hex(rest), label)
    elif kind == "data":
        watch.add_data(_hex(rest), label)
    elif kind == "data-prefix":
        watch.add_data_prefix(_hex(rest), label)
    elif kind == "script-type":
        watch.add_script_type(rest, label)
    else:
        raise ParameterError(
            entries.explained(entry)
            or "unknown kind of entry before the colon: expected script, pubkey, data, outpoint, keychain,"
            " data-prefix or script-type, or an address or a descriptor"
        )


def _add_outpoint(watch: LineSink, entry: str, label: str | None) -> None:
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


def _number(text: str) -> int:
    """Return the number of a silent payment label. Raises ParameterError if the text is malformed."""
    if not (text.isascii() and text.isdigit() and len(text) <= _LABEL_DIGITS):
        raise ParameterError("expected a whole label number N, as in sp-label:N,LABEL and sp-labels:N")
    return int(text)


def _add_payment(watch: LineSink, name: str, entry: str, label: str | None) -> None:
    """Add the silent payment on an `sp-output:` line to the keychain with this name."""
    parts = entry.removeprefix(_SP_OUTPUT).split(":")
    if len(parts) != 3:
        raise ParameterError(f"expected sp-output:SCRIPT:TWEAK:N, not {len(parts)} parts after sp-output")
    script, tweak = _hex(parts[0]), _hex(parts[1])
    if len(script) != 34 or script[:2] != b"\x51\x20" or len(tweak) != 32:
        raise ParameterError("expected sp-output: with a P2TR script of 34 bytes and a tweak of 32 bytes")
    watch.add_payments([(name, script, silentkeychain.Found(_number(parts[2]) if parts[2] else None, tweak))])
    if label is not None:
        watch.add_entry(EntryKind.SCRIPT, script, label)


def _hex(text: str) -> bytes:
    """Return the bytes that a hex string encodes.

    Raises ParameterError if the text is not hex. The message does not repeat the text, because people paste private
    keys into the wrong places.
    """
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ParameterError(f"expected pairs of hex digits, not these {len(text)} characters") from None


def write(watch: Source, path: str | os.PathLike[str], *, secrets: bool = False) -> None:
    """Write the whole watch list to a file of mode 0600, which atomically replaces the file at `path`.

    If `secrets` is True, the file contains the private scan keys of sp() descriptors.
    """
    with replacing(pathlib.Path(path)) as file:
        file.write(f"# spvfilter watch list, {watch.network}\n".encode())
        file.writelines(f"{line}\n".encode() for line in _lines(watch, secrets))


def _lines(watch: Source, secrets: bool) -> Iterator[str]:
    """Yield the lines of entries without an account, then the lines of each account."""
    owned: dict[str, list[str]] = {name: [] for name in watch.accounts}
    for account, line in _owned_lines(watch, secrets):
        if account is None:
            yield line
        else:
            owned[account].append(line)
    for name, lines in owned.items():
        yield f"{_ACCOUNT}{name}"
        yield from lines


def _tail(label: str | None) -> str:
    """Return the end of an entry's line, which contains the label if there is one."""
    return f",{label_line(label)}" if label else ""


def _silent_lines(watch: Source, keychain: SilentKeychain, secrets: bool) -> Iterator[str]:
    """Yield the lines of an sp() descriptor, its labels and its payments, or without `secrets` only a comment."""
    if not secrets:
        yield f"# {keychain.descriptor} is not searched for: its scan key was left out"
        return
    yield keychain.silent.secret + _tail(keychain.label)
    if keychain.depth:
        yield f"{_SP_LABELS}{keychain.depth}"
    paid = {found.label for found in keychain.found.values() if found.label}
    for number in sorted({*keychain.labels, *range(1, keychain.revealed), *paid}):
        yield f"{_SP_LABEL}{number}{_tail(keychain.text_of(number))}"
    for script, found in keychain.found.items():
        if not found.tweak:
            continue
        label = watch.own_label(watch.table.find(EntryKind.SCRIPT, script))
        number = "" if found.label is None else found.label
        yield f"{_SP_OUTPUT}{script.hex()}:{found.tweak.hex()}:{number}{_tail(label)}"


def _owned_lines(watch: Source, secrets: bool) -> Iterator[tuple[str | None, str]]:
    """Yield the account and the line of each entry."""
    # keychains and keys come first: they label their scripts, and the line of a script then replaces its label
    yield from _keychain_lines(watch, secrets)
    for number, (kind, value, label) in sorted(
        enumerate(watch.entries()), key=lambda entry: entry[1][0] != EntryKind.MULTISIG_KEY
    ):
        if not _has_own_line(watch, number, secrets):
            continue
        tail, account = _tail(label), watch.account(number)
        match kind:
            case EntryKind.SCRIPT:
                yield account, (script_to_address(value, watch.network) or f"script:{value.hex()}") + tail
            case EntryKind.MULTISIG_KEY:
                yield account, f"pubkey:{value.hex()}{tail}"
            case EntryKind.DATA:
                yield account, f"data:{value.hex()}{tail}"
            case EntryKind.DATA_PREFIX:
                yield account, f"{patterns.DATA_PREFIX}{value.hex()}{tail}"
            case EntryKind.SCRIPT_TYPE:
                yield account, f"{patterns.type_line(value)}{tail}"
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
        tail = _tail(labels.get(point))
        yield account, f"outpoint:{OutPoint.parse(point)}{known}{tail}"


def _keychain_lines(watch: Source, secrets: bool) -> Iterator[tuple[str | None, str]]:
    """Yield the account and the line of each keychain that has a descriptor."""
    for keychain in watch.keychains:
        if is_silent(keychain):
            yield from ((keychain.account, line) for line in _silent_lines(watch, keychain, secrets))
        elif keychain.descriptor is not None:
            tail = _tail(keychain.label)
            text = f"keychain:{keychain.end}:{keychain.lookahead}:{keychain.descriptor}{tail}"
            yield keychain.account, text


def _has_own_line(watch: Source, number: int, secrets: bool) -> bool:
    """Return True if the entry with this number needs a line of its own, because no keychain's line covers it."""
    place = watch.keychain_of(number)
    if place is None:
        return True
    if is_silent(chain := place[0]):
        script = watch.table.entry(number)[1]
        found = chain.found.get(script)
        return script != chain.anchor and (not secrets or found is None or not found.tweak)
    is_derived = place[0].descriptor is not None and place[0].account == watch.account(number)
    return not is_derived or watch.own_label(number) is not None
