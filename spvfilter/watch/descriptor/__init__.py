"""Output descriptors and extended public keys: parse text and derive the scripts of each index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.watch.descriptor.descriptor import Descriptor as Descriptor, parse_descriptor as parse_descriptor
    from spvfilter.watch.descriptor.spending import KeyOrigin as KeyOrigin, Spending as Spending, TapLeaf as TapLeaf
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__, descriptor="Descriptor parse_descriptor", spending="KeyOrigin Spending TapLeaf"
    )
