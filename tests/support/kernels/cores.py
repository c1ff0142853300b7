"""Filters over a chosen kernel, and the methods that a kernel shares only with the filters built on it."""

from __future__ import annotations

from functools import cache, partialmethod
from typing import Any

from spvfilter.bloom import BloomFilter, CountingBloomFilter
from spvfilter.bloom.base import GenericFilter

SAME_SHAPE, MAKE_ROOM = "_same_shape", "_make_room"
"""Names of two methods: the check that another filter has this shape, and the request for room for a key."""


def same_shape(core: Any, other: object) -> None:
    """Raise MismatchError unless another core has the same shape, and TypeError if it is not a core."""
    getattr(core, SAME_SHAPE)(other)


@cache
def compiled_filters(core: str = "BitCore") -> Any:
    """Return the class of filters over the compiled core, even if the package uses another core.

    The digits at the end of a name are the size of counters.
    """
    from spvfilter.kernel import native

    name = core.rstrip("0123456789")
    of, kernel_type = BloomFilter if name == "BitCore" else CountingBloomFilter, getattr(native, name)
    size = {"counter_bits": int(digits)} if (digits := core.removeprefix(name)) else {}
    own = {"_kind": of._kind, "_KINDS": of._KINDS, "approx_len": of.approx_len, "_init_core": kernel_type.__init__}
    own["__init__"] = partialmethod(of.__init__, **size)
    return type(f"Compiled{core}", (GenericFilter, kernel_type), own)
