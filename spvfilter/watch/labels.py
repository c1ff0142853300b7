"""Wallet labels in JSON Lines (BIP-329): one record for each transaction, address, key, input or output.

A line is a JSON object with `type` and `ref`, and optionally `label`, `origin` and `spendable`. Other fields, and
records of other types, are kept unchanged:

    {"type":"tx","ref":"f91d0a8a…","label":"rent","origin":"wpkh([d34db33f/84h/0h/0h])"}
    {"type":"output","ref":"f91d0a8a…:1","label":"deposit","spendable":false}
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Self

from spvfilter._public import public, warn
from spvfilter.errors import FormatError, ParameterError, WalletFileWarning, counted
from spvfilter.files import replacing
from spvfilter.primitives import OutPoint, hash_from_hex, hash_to_hex
from spvfilter.watch.arguments import checked_label

MAX_LINE = 100_000
"""Largest length of a line in bytes (our choice). BIP-329 suggests labels of at most 255 characters."""
MAX_LABELS = 1_000_000
"""Largest number of records in a file (our choice)."""
MAX_LABEL_FILE = 100_000_000
"""Largest size of a file in bytes (our choice)."""
_NAMED = 20
"""Number of malformed lines that an error lists (our choice)."""
_PRIVATE = re.compile(
    rb"(?<![0-9A-Za-z])(?:[xyzYZtuvUV]prv|(?:[59][0-9A-Za-z]{50}|[KLc][0-9A-Za-z]{51})(?![0-9A-Za-z]))"
)
_KEY = re.compile(r"[0-9a-fA-F]{64}|0[23][0-9a-fA-F]{64}|0[467][0-9a-fA-F]{128}")


def _address(ref: str) -> str:
    return ref.lower() if ref == ref.upper() else ref  # bech32 in capital letters, as in QR codes


def _pubkey(ref: str) -> str:
    if not _KEY.fullmatch(ref):
        raise ParameterError("a public key must be 64, 66 or 130 hex digits")
    return ref.lower()


_REFS: Mapping[str, Callable[[str], str]] = {
    "tx": lambda ref: hash_to_hex(hash_from_hex(ref)),
    "addr": _address,
    "pubkey": _pubkey,
    "input": lambda ref: str(OutPoint.from_text(ref)),
    "output": lambda ref: str(OutPoint.from_text(ref)),
    "xpub": str,
}
"""Functions that return the canonical form of a `ref`, by record type."""


@public
@dataclass(frozen=True, slots=True)
class Label:
    """One record of BIP-329: a label of a transaction, address, key, input or output.

    The constructor raises ParameterError for an invalid value, changes hex digits in `ref` to lower case, and strips
    white space around `label`. `bytes(label)` is the label's line, without the line ending.
    """

    type: str
    """Type of the record: tx, addr, pubkey, input, output, xpub or another word."""
    ref: str
    """The labelled thing: a txid, address, public key, TXID:INDEX of an input or output, or extended public key."""
    label: str | None = None
    """The label. On import, an empty label removes the existing one, and None keeps it."""
    origin: str | None = None
    """Origin of the record's wallet, as a descriptor without keys, or None if it is not given."""
    spendable: bool | None = None
    """False if the output is frozen, so the wallet must not spend it, or None if it is not given."""
    other: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Other fields of the record, such as `height`, as JSON values."""

    def __post_init__(self) -> None:
        for name in ("type", "ref", "origin"):
            value = getattr(self, name)
            if value is None and name == "origin":
                continue
            if not isinstance(value, str) or not value or not value.isprintable():
                raise ParameterError(f"the field {name!r} must be printable text")
        if self.label is not None:
            object.__setattr__(self, "label", checked_label(self.label) or "")
        if self.spendable is not None and (self.type != "output" or not isinstance(self.spendable, bool)):
            raise ParameterError("the field 'spendable' must be true or false, and only an output may have it")
        object.__setattr__(self, "ref", _REFS.get(self.type, str)(self.ref))
        taken = {"type", "ref", "label", "origin", *(["spendable"] if self.type == "output" else [])}
        if found := self.other.keys() & taken:
            raise ParameterError(f"an extra field must not be named {min(found)!r}")
        line = bytes(self)
        if len(line) > MAX_LINE:
            raise ParameterError(f"the record must be at most {MAX_LINE:,} bytes long, not {len(line):,}")
        if _PRIVATE.search(line):
            raise ParameterError("the record looks like it contains a private key, and was not kept: remove the key")

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Parse a line. If it is malformed, the ParameterError says what is wrong."""
        if len(line) > MAX_LINE:
            raise ParameterError(f"the line must be at most {MAX_LINE:,} bytes long, not {len(line):,}")
        try:
            found = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
        except UnicodeDecodeError:
            raise ParameterError("the line is not UTF-8") from None
        except (ValueError, RecursionError):
            raise ParameterError('the line is not JSON: expected an object such as {"type":…,"ref":…}') from None
        if not isinstance(found, dict):
            raise ParameterError('the line is not a JSON object: expected one such as {"type":…,"ref":…}')
        fields = {name: found.pop(name, None) for name in ("type", "ref", "label", "origin")}
        if missing := [name for name in ("type", "ref") if fields[name] is None]:
            raise ParameterError(f"the field {missing[0]!r} is missing")
        if fields["label"] is not None and not isinstance(fields["label"], str):
            raise ParameterError(f"the field 'label' must be text, not {type(fields['label']).__name__}")
        spendable = found.pop("spendable", None) if fields["type"] == "output" else None
        if isinstance(spendable, str):  # as in older versions of BIP-329
            spendable = {"true": True, "false": False}.get(spendable, spendable)
        return cls(**fields, spendable=spendable, other=found)

    def __bytes__(self) -> bytes:
        parts = {
            "type": self.type,
            "ref": self.ref,
            "label": self.label,
            "origin": self.origin,
            "spendable": self.spendable,
        }
        whole = {name: value for name, value in parts.items() if value is not None} | dict(self.other)
        try:
            return json.dumps(whole, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
        except (TypeError, ValueError, RecursionError):
            raise ParameterError("the value of an extra field cannot be represented as JSON in UTF-8") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


@public
def parse_labels(data: bytes) -> list[Label]:
    """Parse labels in JSON Lines (BIP-329). Empty lines are skipped.

    Malformed lines are skipped. A WalletFileWarning gives the numbers of the first 20.

    Args:
        data: Contents of the file.

    Raises:
        FormatError: None of the lines is a label, or there are too many.
    """
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")  # the line endings of old Macs
    found: list[Label] = []
    faults: list[tuple[int, int, str]] = []  # number of the line, its offset, and the fault
    offset = 0
    for number, line in enumerate(io.BytesIO(data), 1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line  # the mark of UTF-8 that some editors write
        if text := text.strip():
            if len(found) + len(faults) == MAX_LABELS:
                raise FormatError(f"more than {MAX_LABELS:,} records: split the file", offset=offset, field="labels")
            try:
                found.append(Label.parse(text))
            except ParameterError as error:
                faults.append((number, offset, str(error)))
        offset += len(line)
    if faults:
        named = "; ".join(f"line {number}: {fault}" for number, _, fault in faults[:_NAMED])
        more = f"; and {counted(len(faults) - _NAMED, 'more line')}" if len(faults) > _NAMED else ""
        if not found:
            raise FormatError(f"{named}{more}", offset=faults[0][1], field="labels")
        several = f"{len(faults):,} lines were" if len(faults) > 1 else "1 line was"
        warn(f"{several} left out of the labels: {named}{more}", WalletFileWarning)
    return found


@public
def read_labels(source: str | os.PathLike[str] | IO[bytes]) -> list[Label]:
    """Read a label file (BIP-329).

    Args:
        source: Path of the file, or a file that is open in binary mode.

    Raises:
        FormatError: The file exceeds 100 MB, or `parse_labels` rejects its contents.
        OSError: The file cannot be read.
    """
    if isinstance(source, (str, os.PathLike)):
        with pathlib.Path(source).open("rb") as file:
            return read_labels(file)
    data = source.read(MAX_LABEL_FILE + 1)
    if len(data) > MAX_LABEL_FILE:
        raise FormatError(f"more than {MAX_LABEL_FILE:,} bytes: split the file", offset=MAX_LABEL_FILE, field="labels")
    return parse_labels(data)


@public
def write_labels(path: str | os.PathLike[str], labels: Iterable[Label]) -> None:
    """Write labels to a file of mode 0600, replacing an existing one.

    Args:
        path: Path of the file.
        labels: The labels, in the order of the lines.

    Raises:
        OSError: The file cannot be written.
    """
    with replacing(pathlib.Path(path)) as file:
        file.writelines(bytes(label) + b"\n" for label in labels)
