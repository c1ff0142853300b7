"""The manifest of a directory of parts: the inputs of its scan or export, the last chain, and the finished files.

A run with different inputs is refused in the same directory.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from spvfilter.errors import ParameterError, SourceError
from spvfilter.files import SHARED, replacing
from spvfilter.kernel import WatchTable
from spvfilter.network import Network

NAME = "manifest.json"
FORMAT = 2
WATCH_LIST = "watch list"  # The value of this input is a digest.
PARQUET_HASHES = "form of hashes in Parquet"  # Only scans have this input. Older manifests lack it.
TEXT_HASHES = "text in hex"  # The other form is "binary". A scan without a form in its manifest wrote text.
TABLE_HASHES = "form of hashes"  # Only exports have this input.
_PACKED = 65_536  # Number of entries that are hashed at a time (our choice).
_HASH = re.compile("(?:[0-9a-f]{64})?")


def run_inputs(network: Network, undo: str, span: str) -> dict[str, str]:
    """Return the inputs that a plan contributes: its network, its undo mode, and its range of blocks."""
    return {"network": network.name, "undo mode": undo, "range": span}


@dataclass(slots=True)
class Manifest:
    """The inputs and the results of the scan or export in a directory."""

    inputs: dict[str, str]
    """The inputs, keyed by their names in English. A run with a different value is a different scan or export."""
    finished: list[str] = field(default_factory=list)
    """Names of the part files of the last finished run, in chain order. Empty if no run has finished."""
    blocks: int = 0
    """Number of blocks on the best branches in the last finished run."""
    tip: str = ""
    """Hash of the last of these blocks, as hex in wire order. Empty if no run has finished."""
    lasts: list[str] = field(default_factory=list)
    """Hash of the last block in each file of each part of the last finished run, as hex in wire order."""
    rendered: dict[str, str] = field(default_factory=dict)
    """For each result file's name, the digest of its inputs and the states of its files."""
    windows: list[dict[str, int]] = field(default_factory=list)
    """The ends of the keychain windows, keyed by name, in the order in which the scan reached them."""
    parts_removed: bool = False
    """True if the files of parts were deleted after the last run, so the scan cannot grow."""

    @classmethod
    def read(cls, directory: Path) -> Manifest | None:
        """Return the manifest of a directory, or None if there is none.

        Raises SourceError if it is damaged or from a different version, and OSError if it cannot be read.
        """
        path = directory / NAME
        try:
            held = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            raise SourceError(
                f"{path}: this is not the manifest of a scan or export, or it is damaged: choose another directory"
            ) from None
        if not isinstance(held, dict) or held.pop("format", None) != FORMAT:
            raise SourceError(
                f"{path}: this is not the manifest of a scan or export, or a different version of spvfilter wrote it:"
                " choose another directory"
            )
        try:
            made = cls(**held)
        except TypeError:
            raise SourceError(f"{path}: this manifest is damaged: scan into another directory") from None
        if not made._is_sound():
            raise SourceError(f"{path}: this manifest is damaged: scan into another directory")
        return made

    def _is_sound(self) -> bool:
        """Return True if all values have the right types and no name leads to a different directory.

        A user may have edited the file.
        """
        return (
            all(isinstance(held, dict) for held in (self.inputs, self.rendered))
            and all(isinstance(text, str) for text in (*self.inputs.values(), *self.rendered.values()))
            and isinstance(self.finished, list)
            and all(
                isinstance(name, str) and name == Path(name).name and name.endswith(".part") for name in self.finished
            )
            and type(self.blocks) is int
            and self.blocks >= 0
            and isinstance(self.lasts, list)
            and all(isinstance(block, str) and _HASH.fullmatch(block) for block in (*self.lasts, self.tip))
            and isinstance(self.windows, list)
            and all(isinstance(ends, dict) for ends in self.windows)
            and all(type(end) is int and end >= 0 for ends in self.windows for end in ends.values())
            and isinstance(self.parts_removed, bool)
        )

    def write(self, directory: Path) -> None:
        """Write the manifest, replacing an earlier one. Raises OSError if the file cannot be written."""
        held = {"format": FORMAT} | {name: getattr(self, name) for name in self.__dataclass_fields__}
        with replacing(directory / NAME, SHARED) as file:
            file.write(json.dumps(held, indent=1).encode())

    def refuse_other(self, wanted: Manifest, directory: Path) -> None:
        """Raise ParameterError unless the directory holds a scan or an export with the inputs of `wanted`."""
        held, other = ("an export" if TABLE_HASHES in each.inputs else "a scan" for each in (self, wanted))
        if held != other:
            raise ParameterError(f"{directory} holds {held}, not {other}: choose another directory")
        kind, same = ("export", "columns") if TABLE_HASHES in self.inputs else ("scan", "watch list")
        for name in {**self.inputs, **wanted.inputs}:
            lacking = TEXT_HASHES if name == PARQUET_HASHES else "missing"
            old, new = self.inputs.get(name, lacking), wanted.inputs.get(name, lacking)
            if old == new:
                continue
            cause = f"its {name} is {old}, not {new}"
            if name == WATCH_LIST:
                cause = "its watch list contains different entries, or the same ones in a different order"
            raise ParameterError(
                f"{directory} holds a different {kind}: {cause}. Use the same {same} and options as before, or choose"
                " another directory"
            )


def table_digest(table: WatchTable) -> bytes:
    """Return the SHA-256 of a table's entries in order, and of the outpoints that it watches."""
    digest = sha256()
    for first in range(0, len(table), _PACKED):
        digest.update(table.packed_entries(first, _PACKED))
    for outpoint, coin in sorted(table.coins()):
        script = b"" if coin.script is None else b"\1" + coin.script
        digest.update(outpoint + coin.entry.to_bytes(4, "little") + coin.value.to_bytes(8, "little", signed=True))
        digest.update(len(script).to_bytes(4, "little") + script)
    return digest.digest()
