"""The elements of a watch list: those of its BIP-37 filter, and the scripts to look up in BIP-158 filters."""

from __future__ import annotations

from spvfilter.errors import InexpressibleError
from spvfilter.kernel import EntryKind, WatchTable
from spvfilter.primitives import OutPoint, script_pushes

_OP_RETURN = 0x6A


def _refuse(patterns: list[str]) -> None:
    """Raise InexpressibleError if there are data prefixes or script types. `patterns` lists them in hex."""
    if patterns:
        message = "filters cannot find data prefixes or script types: scan blocks for them"
        raise InexpressibleError(message, tuple(patterns))


def refuse_silent(names: list[str]) -> None:
    """Raise InexpressibleError if there are silent payment addresses. `names` contains the names of their keychains."""
    if names:
        message = "filters cannot find payments to silent payment addresses: scan blocks for them"
        raise InexpressibleError(message, tuple(names))


def _is_witness_program(script: bytes) -> bool:
    """Return True if a script is that of a segwit address, which pushes once (Core CScript::IsWitnessProgram)."""
    return 4 <= len(script) <= 42 and script[1] == len(script) - 2 and (not script[0] or 0x51 <= script[0] <= 0x60)


def bloom_elements(table: WatchTable) -> list[bytes]:
    """Return the elements of a BIP-37 filter, as WatchList.bloom_elements does, for the entries in a table.

    Raises InexpressibleError if scripts push no data.
    """
    elements: dict[bytes, None] = {}
    silent, patterns = list[str](), list[str]()
    script_kind, outpoint_kind, first_pattern = map(int, (EntryKind.SCRIPT, EntryKind.OUTPOINT, EntryKind.DATA_PREFIX))
    for kind, value in table.entries():
        if kind == script_kind:
            push = value[2:] if _is_witness_program(value) else max(script_pushes(value), key=len, default=b"")
            if not push:
                silent.append(value.hex())
            elements[push] = None
        elif kind >= first_pattern:
            patterns.append(value.hex())
        elif kind != outpoint_kind:
            elements[value] = None
    _refuse(patterns)
    if silent:
        shown = ", ".join(silent[:5]) + (f" and {len(silent) - 5} more" if len(silent) > 5 else "")
        raise InexpressibleError(f"BIP-37 filters cannot find scripts that push no data: {shown}", tuple(silent))
    elements.update((point, None) for point, _ in table.coins())
    return list(elements)


def gcs_elements(table: WatchTable, first: int = 0) -> list[bytes]:
    """Return the scripts to look up in a BIP-158 filter, as WatchList.gcs_elements does, for the entries in a table.

    Args:
        table: The table.
        first: Number of the first entry to include. The scripts of known outpoints are always included.

    Raises:
        InexpressibleError: Compact filters cannot find one of the entries.
    """
    scripts: dict[bytes, None] = {}
    hidden, patterns = list[str](), list[str]()
    script_kind, first_pattern = int(EntryKind.SCRIPT), int(EntryKind.DATA_PREFIX)
    for kind, value in table.entries() if first == 0 else map(table.entry, range(first, len(table))):
        if kind == script_kind and value[0] != _OP_RETURN:
            scripts[value] = None
        elif kind in (EntryKind.SCRIPT, EntryKind.DATA):
            hidden.append(value.hex())
        elif kind >= first_pattern:
            patterns.append(value.hex())
    _refuse(patterns)
    for point, coin in table.coins():
        if coin.script:
            scripts[coin.script] = None
        else:
            hidden.append(str(OutPoint.parse(point)))
    if hidden:
        shown = ", ".join(hidden[:5]) + (f" and {len(hidden) - 5} more" if len(hidden) > 5 else "")
        raise InexpressibleError(f"compact filters cannot find: {shown}", tuple(hidden))
    return list(scripts)
