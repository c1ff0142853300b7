"""Weight of an engine: how much it remembers, counted over everything that can be reached from it."""

from __future__ import annotations

import gc
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import NamedTuple

from spvfilter.chain import HeaderChain
from spvfilter.watch.watchlist import WatchList

_NOT_ITS_OWN = (ModuleType, type, HeaderChain, WatchList, BuiltinFunctionType)  # shared, or bounded by the chain and by the user


class Weight(NamedTuple):
    """Objects, and the bytes that byte strings have."""

    objects: int
    size: int


def weigh(root: object) -> Weight:
    """Everything that `root` holds on to."""
    seen = {id(root)}
    waiting = [root]
    objects = size = 0
    while waiting:
        each = waiting.pop()
        objects += 1
        if isinstance(each, (bytes, bytearray)):
            size += len(each)
            continue
        if isinstance(each, FunctionType):  # its globals are the module's
            held: list[object] = [cell.cell_contents for cell in each.__closure__ or ()]
        else:
            held = gc.get_referents(each)
        for other in held:
            if id(other) not in seen and not isinstance(other, _NOT_ITS_OWN):
                seen.add(id(other))
                waiting.append(other)
    return Weight(objects, size)
