"""The manifest of a directory of parts: the inputs of its scan, and the finished files.

It keeps another scan from using the same directory.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from spvfilter.errors import ParameterError, SourceError
from spvfilter.files import replacing
from spvfilter.kernel import WatchTable
from spvfilter.scan.plan import Plan

NAME = "manifest.json"
FORMAT = 1
_HEX = re.compile("(?:[0-9a-f]{64})?")


class ScannedFile(NamedTuple):
    """A file of blocks, as the plan described it when the scan began."""

    path: str
    """Path of the file."""
    blocks: int
    """Number of the file's blocks that belong to the plan."""
    digest: str
    """SHA-256 of the places, hashes and undo records of the file's planned blocks, in hex."""


@dataclass(slots=True)
class Manifest:
    """The inputs and the results of the scan in a directory."""

    network: str
    """Name of the network."""
    watch: str
    """SHA-256 of the watch list, in hex."""
    plan: str
    """Fingerprint of the plan, in hex."""
    span: str
    """The range of blocks to scan, in words."""
    undo: str
    """The mode that says how undo files are used: the value of an UndoMode."""
    check: bool
    """True if the scan verifies each block."""
    files: list[ScannedFile]
    """The files of blocks that are scanned."""
    finished: list[str] = field(default_factory=list)
    """Names of the part files of the finished scan, in order; empty until all are complete."""
    coins: str = ""
    """Key of the outpoints of a second pass, hex; empty if there was no second pass."""
    windows: dict[str, int] = field(default_factory=dict)
    """Index at which the window of each keychain ended after the scan, by the keychain's name."""
    rendered: dict[str, str] = field(default_factory=dict)
    """Digest of the labels in each output, and sizes of files, by the output's name."""

    @classmethod
    def of(cls, plan: Plan, table: WatchTable, check: bool) -> Manifest:
        """Return the manifest of a new scan of a plan for the entries of a table."""
        files = [ScannedFile(path, blocks, digest.hex()) for path, blocks, digest in plan.files]
        return cls(
            plan.network.name,
            table_digest(table).hex(),
            plan.fingerprint.hex(),
            plan.span,
            str(plan.undo),
            check,
            files,
        )

    @classmethod
    def read(cls, directory: Path) -> Manifest | None:
        """The manifest of a directory; None if there is none.

        Raises OSError; SourceError if it is damaged or of another version.
        """
        path = directory / NAME
        try:
            held = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            raise SourceError(f"{path}: not a manifest of a scan, or damaged: choose another directory") from None
        if not isinstance(held, dict) or held.pop("format", None) != FORMAT:
            raise SourceError(f"{path}: not the manifest of a scan by this version of spvfilter")
        try:
            held["files"] = [ScannedFile(*each) for each in held["files"]]
            made = cls(**held)
        except (TypeError, KeyError):
            raise SourceError(f"{path}: a damaged manifest: scan into another directory") from None
        if not made._is_sound():
            raise SourceError(f"{path}: a damaged manifest: scan into another directory")
        return made

    def _is_sound(self) -> bool:
        """Return True if all values have the right types and no name leads to another directory.

        A user may have edited the file.
        """
        texts = (self.network, self.watch, self.plan, self.span, self.undo)
        return (
            all(isinstance(text, str) for text in texts)
            and isinstance(self.check, bool)
            and all(list(map(type, file)) == [str, int, str] for file in self.files)
            and isinstance(self.finished, list)
            and all(
                isinstance(name, str) and name == Path(name).name and name.endswith(".part") for name in self.finished
            )
            and isinstance(self.coins, str)
            and _HEX.fullmatch(self.coins) is not None
            and isinstance(self.windows, dict)
            and all(type(end) is int and end >= 0 for end in self.windows.values())
            and isinstance(self.rendered, dict)
            and all(isinstance(digest, str) for digest in self.rendered.values())
        )

    def write(self, directory: Path) -> None:
        """Write the manifest, which replaces an earlier manifest. Raises OSError if the file cannot be written."""
        held = {"format": FORMAT} | {name: getattr(self, name) for name in self.__dataclass_fields__}
        with replacing(directory / NAME) as file:
            file.write(json.dumps(held, indent=1).encode())

    def refuse_other(self, wanted: Manifest, directory: Path) -> None:
        """Raise ParameterError unless the directory holds the scan `wanted`."""
        cause = self._difference(wanted)
        if cause is not None:
            raise ParameterError(
                f"{directory} holds another scan: {cause}. Use the same files and options as before, or choose another"
                " directory"
            )

    def _difference(self, wanted: Manifest) -> str | None:
        """Return the first difference from the scan `wanted`, in words; None if it is the same scan."""
        if self.network != wanted.network:
            return f"of {self.network}, not of {wanted.network}"
        if self.watch != wanted.watch:
            return "its watch list has other entries, or has them in another order"
        if self.undo != wanted.undo or self.check != wanted.check:
            return f"with undo {self.undo} and {'' if self.check else 'no '}checks of blocks"
        if self.span != wanted.span:
            return f"of another range, {self.span}"
        return self._changed_file(wanted) or (
            None if self.plan == wanted.plan else "its blocks are cut into other parts"
        )

    def _changed_file(self, wanted: Manifest) -> str | None:
        """Return the first file that differs from the scan `wanted`, in words; None if all files are the same."""
        for old, new in zip(self.files, wanted.files, strict=False):
            if (old.blocks, old.digest) != (new.blocks, new.digest):
                if old.path != new.path:
                    return f"of {old.path}, where {new.path} is now"
                if old.blocks != new.blocks:
                    return f"{new.path} has changed: {old.blocks:,} block(s) then, {new.blocks:,} now"
                return (
                    f"{new.path} has changed: its blocks or their undo records differ from then, or are in other places"
                )
        if len(self.files) != len(wanted.files):
            longer = max(self.files, wanted.files, key=len)[min(len(self.files), len(wanted.files))]
            return f"{longer.path} {'is new' if len(wanted.files) > len(self.files) else 'is missing now'}"
        return None


def table_digest(table: WatchTable) -> bytes:
    """Return the SHA-256 of a table's entries, in their order, and of the outpoints that it watches."""
    digest = sha256()
    for kind, value in table.entries():
        digest.update(bytes((kind,)) + len(value).to_bytes(4, "little") + value)
    for outpoint, coin in sorted(table.coins()):
        script = b"" if coin.script is None else b"\1" + coin.script
        digest.update(outpoint + coin.entry.to_bytes(4, "little") + coin.value.to_bytes(8, "little", signed=True))
        digest.update(len(script).to_bytes(4, "little") + script)
    return digest.digest()
