"""Generic Bloom filters, including counting, scalable and static filters: hash families, sizes and file formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.bloom.base import Encode as Encode
    from spvfilter.bloom.counting import CountingBloomFilter as CountingBloomFilter
    from spvfilter.bloom.fileformat import FileHeader as FileHeader
    from spvfilter.bloom.filter import BloomBits as BloomBits, BloomFilter as BloomFilter
    from spvfilter.bloom.fuse import StaticFilter as StaticFilter
    from spvfilter.bloom.fuseformat import StaticHeader as StaticHeader
    from spvfilter.bloom.growth import Grown as Grown, Growth as Growth
    from spvfilter.bloom.hashing import (
        Bip37Hash as Bip37Hash,
        CustomHash as CustomHash,
        FastHash as FastHash,
        HashFamily as HashFamily,
        SipHash as SipHash,
    )
    from spvfilter.bloom.scalable import ScalableBloomFilter as ScalableBloomFilter
    from spvfilter.bloom.size import Expected as Expected, Size as Size
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        base="Encode",
        counting="CountingBloomFilter",
        fileformat="FileHeader",
        filter="BloomBits BloomFilter",
        fuse="StaticFilter",
        fuseformat="StaticHeader",
        growth="Grown Growth",
        hashing="Bip37Hash CustomHash FastHash HashFamily SipHash",
        scalable="ScalableBloomFilter",
        size="Expected Size",
    )
