"""Transcripts: commands and all that they print, kept in a file next to the tests and compared line by line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from syrupy.extensions.amber import AmberSnapshotExtension
from syrupy.extensions.amber.serializer import AmberDataSerializer

from spvfilter import __version__

# Transcripts replace what differs between runs, machines or releases.
VARYING = (
    (r"(?<=127\.0\.0\.1:)\d{5}", "PORT"),
    (r"\b[\d.,]+ kB in [\d.]+ s\b( \([^)]*\))?", "… kB in … s"),
    (r"(?<=this machine's )\d+", "…"),
    (rf"\b{re.escape(__version__)}\b", "VERSION"),
    (r"\b(\w)\1{64,}\b", lambda run: f"<{len(run[0])} times {run[1]}>"),
    (r"\b[0-9a-f]{65,}\b", lambda digits: f"<{len(digits[0])} hex digits>"),
)


class PlainText(AmberDataSerializer):
    """Keeps a transcript as it is, where syrupy would put quotes around it."""

    @classmethod
    def serialize(cls, data: Any, **options: Any) -> str:
        return str(data)


class Transcripts(AmberSnapshotExtension):
    serializer_class = PlainText


def printable(character: str) -> str:
    """Return a character, or its number, which looks unlike an escape that the command itself printed."""
    return character if character.isprintable() else f"<0x{ord(character):02x}>"


def transcript(line: str, out: str, err: str, folder: Path) -> str:
    """A command, its standard output, and its standard error behind `2>`, without what varies."""
    told = [f"$ spvfilter {line}", *out.splitlines(), *(f"2> {each}" for each in err.splitlines())]
    text = "\n".join("".join(map(printable, each)) for each in told).replace(f"{folder}", "TMP")
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text)
    return text
