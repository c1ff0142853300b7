"""Weight of an engine: how much it remembers, counted over everything that can be reached from it."""

from __future__ import annotations

import gc
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import NamedTuple

from spvfilter.chain import HeaderChain
from spvfilter.watch.watchlist import WatchList

# shared, or bounded by the chain and by the user
_NOT_ITS_OWN = (ModuleType, type, HeaderChain, WatchList, BuiltinFunctionType)


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
        objects += len(waiting)
        held: list[object] = []
        for each in waiting:
            if isinstance(each, FunctionType):  # its globals are the module's
                held += [cell.cell_contents for cell in each.__closure__ or ()]
            elif isinstance(each, (bytes, bytearray)):
                size += len(each)
        held += gc.get_referents(*[each for each in waiting if not isinstance(each, FunctionType)])
        waiting = []
        for other in held:
            number = id(other)
            if number not in seen:
                seen.add(number)
                if not isinstance(other, _NOT_ITS_OWN):
                    waiting.append(other)
    return Weight(objects, size)
