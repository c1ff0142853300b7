"""Open either kind of filter in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter.bloom.base import OnFull
from spvfilter.bloom.fileformat import KIND_SERIES
from spvfilter.bloom.redis.client import stored_header
from spvfilter.bloom.redis.filter import RedisBloomFilter
from spvfilter.bloom.redis.layout import RedisLayout, header_key, kind_of
from spvfilter.bloom.redis.scalable import RedisScalableBloomFilter
from spvfilter.bloom.redis.serieslayout import SeriesLayout

if TYPE_CHECKING:
    from spvfilter.bloom.redis.client import Client


async def open_any(client: Client, name: str, on_full: OnFull) -> RedisBloomFilter | RedisScalableBloomFilter:
    """Open the filter with that name, unless its hash family or encoding is custom.

    Raises the same errors as RedisBloomFilter.open.
    """
    raw = await stored_header(client, name, header_key(name))
    if kind_of(raw) == KIND_SERIES:
        return RedisScalableBloomFilter(client, SeriesLayout.parse(name, raw, None, None))
    return RedisBloomFilter(client, RedisLayout.parse(name, raw, None, None, on_full))
