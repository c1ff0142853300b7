"""The manifest of a directory of parts: what is scanned there, so that nothing else is mixed into it, and what is
done.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from spvfilter._dataclass import dataclass, field
from spvfilter.errors import ParameterError, SourceError
from spvfilter.files import replacing
from spvfilter.kernel import WatchTable
from spvfilter.scan.plan import Plan

NAME = "manifest.json"
FORMAT = 1
_HEX = re.compile("(?:[0-9a-f]{64})?")


class ScannedFile(NamedTuple):
    """A file of blocks, as it was when the scan began."""

    path: str
    blocks: int
    digest: str
    """Hex, of its blocks' places and hashes."""


@dataclass(slots=True)
class Manifest:
    """What is scanned in a directory."""

    network: str
    watch: str
    """Hex."""
    plan: str
    """Hex."""
    span: str
    undo: str
    check: bool
    files: list[ScannedFile]
    finished: list[str] = field(default_factory=list)
    """The files of all parts in order, once all are there."""
    coins: str = (
        ""  # hex: the key of the outpoints for which parts were scanned in a second pass; empty if there was none
    )
    windows: dict[str, int] = field(default_factory=dict)
    """By keychain: where its window ended then."""
    rendered: dict[str, str] = field(default_factory=dict)
    """By the name of an output: digest of the labels in it, and sizes."""

    @classmethod
    def of(cls, plan: Plan, table: WatchTable, check: bool) -> Manifest:
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
            raise SourceError(f"{path}: no manifest of a scan, or a damaged one") from None
        if not isinstance(held, dict) or held.pop("format", None) != FORMAT:
            raise SourceError(f"{path}: not the manifest of a scan by this version of spvfilter")
        try:
            held["files"] = [ScannedFile(*each) for each in held["files"]]
            made = cls(**held)
        except (TypeError, KeyError):
            raise SourceError(f"{path}: a damaged manifest") from None
        if not made._is_sound():
            raise SourceError(f"{path}: a damaged manifest")
        return made

    def _is_sound(self) -> bool:
        """Whether it has the types that it is written with, and names no file elsewhere: a hand may have changed it."""
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
        """Write it, in place of an earlier one. Raises OSError."""
        held = {"format": FORMAT} | {name: getattr(self, name) for name in self.__dataclass_fields__}
        with replacing(directory / NAME) as file:
            file.write(json.dumps(held, indent=1).encode())

    def refuse_other(self, wanted: Manifest, directory: Path) -> None:
        """Raise ParameterError unless this is the scan that is wanted."""
        cause = self._difference(wanted)
        if cause is not None:
            raise ParameterError(
                f"{directory} holds another scan: {cause}. Go on with what it was begun with, or choose another"
                " directory"
            )

    def _difference(self, wanted: Manifest) -> str | None:
        if self.network != wanted.network:
            return f"of {self.network}, not of {wanted.network}"
        if self.watch != wanted.watch:
            return "its watch list has other entries, or another order of them"
        if self.undo != wanted.undo or self.check != wanted.check:
            return f"with undo {self.undo} and {'' if self.check else 'no '}checks of blocks"
        if self.span != wanted.span:
            return f"of another range, {self.span}"
        return self._changed_file(wanted) or (
            None if self.plan == wanted.plan else "its blocks are cut into other parts"
        )

    def _changed_file(self, wanted: Manifest) -> str | None:
        for old, new in zip(self.files, wanted.files, strict=False):
            if (old.blocks, old.digest) != (new.blocks, new.digest):
                if old.path != new.path:
                    return f"of {old.path}, where {new.path} is now"
                if old.blocks != new.blocks:
                    return f"{new.path} has changed: {old.blocks:,} block(s) then, {new.blocks:,} now"
                return (
                    f"{new.path} has changed: its blocks, or their undo records, are not those of then, or not where"
                    " they were"
                )
        if len(self.files) != len(wanted.files):
            longer = max(self.files, wanted.files, key=len)[min(len(self.files), len(wanted.files))]
            return f"{longer.path} {'is new' if len(wanted.files) > len(self.files) else 'is missing now'}"
        return None


def table_digest(table: WatchTable) -> bytes:
    """SHA-256 of a table's entries, in their order, and of the outpoints that it watches."""
    digest = sha256()
    for kind, value in table.entries():
        digest.update(bytes((kind,)) + len(value).to_bytes(4, "little") + value)
    for outpoint, coin in sorted(table.coins()):
        script = b"" if coin.script is None else b"\1" + coin.script
        digest.update(outpoint + coin.entry.to_bytes(4, "little") + coin.value.to_bytes(8, "little", signed=True))
        digest.update(len(script).to_bytes(4, "little") + script)
    return digest.digest()
