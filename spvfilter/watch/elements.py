"""Elements of a watch list for BIP-37 and BIP-158 filters."""

from __future__ import annotations

from spvfilter.errors import InexpressibleError
from spvfilter.kernel import PATTERN_KINDS, EntryKind, WatchTable
from spvfilter.primitives import OutPoint, script_pushes

_OP_RETURN = 0x6A


def _refuse_patterns(table: WatchTable) -> None:
    """Raise InexpressibleError if an entry is a data prefix or a script type."""
    if not any(table.count_of(kind) for kind in PATTERN_KINDS):
        return
    found = tuple(value.hex() for kind, value in table.entries() if kind >= EntryKind.DATA_PREFIX)
    if found:
        raise InexpressibleError("no filter finds data prefixes and script types: scan blocks for them", found)


def bloom_elements(table: WatchTable) -> list[bytes]:
    """Return the elements that WatchList.bloom_elements returns, for the watch list with this table.

    Raises InexpressibleError if scripts push no data.
    """
    elements: dict[bytes, None] = {}
    silent = []
    _refuse_patterns(table)
    for kind, value in table.entries():
        if kind == EntryKind.SCRIPT:
            push = max(script_pushes(value), key=len, default=b"")
            if not push:
                silent.append(value.hex())
            elements[push] = None
        elif kind != EntryKind.OUTPOINT:
            elements[value] = None
    if silent:
        shown = ", ".join(silent[:5]) + (f" and {len(silent) - 5} more" if len(silent) > 5 else "")
        raise InexpressibleError(f"BIP-37 filters cannot find scripts that push no data: {shown}", tuple(silent))
    elements.update((point, None) for point, _ in table.coins())
    return list(elements)


def gcs_elements(table: WatchTable, first: int = 0) -> list[bytes]:
    """Return the scripts that WatchList.gcs_elements returns, for the watch list with this table.

    Args:
        table: The table.
        first: Number of the first entry whose script is returned. The scripts of known outpoints are always included.

    Raises:
        InexpressibleError: Compact filters cannot find one of these entries.
    """
    scripts: dict[bytes, None] = {}
    hidden: list[str] = []
    _refuse_patterns(table)
    script_kind = int(EntryKind.SCRIPT)
    for kind, value in table.entries() if first == 0 else map(table.entry, range(first, len(table))):
        if kind == script_kind and value[0] != _OP_RETURN:
            scripts[value] = None
        elif kind in (EntryKind.SCRIPT, EntryKind.DATA):
            hidden.append(value.hex())
    for point, coin in table.coins():
        if coin.script:
            scripts[coin.script] = None
        else:
            hidden.append(str(OutPoint.parse(point)))
    if hidden:
        shown = ", ".join(hidden[:5]) + (f" and {len(hidden) - 5} more" if len(hidden) > 5 else "")
        raise InexpressibleError(f"compact filters cannot find: {shown}", tuple(hidden))
    return list(scripts)
