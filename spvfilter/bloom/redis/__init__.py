"""Bloom filters in Redis that many machines share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.bloom.redis.client import connect as connect
    from spvfilter.bloom.redis.filter import SHARD_SIZE as SHARD_SIZE, RedisBloomFilter as RedisBloomFilter
    from spvfilter.bloom.redis.scalable import RedisScalableBloomFilter as RedisScalableBloomFilter
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        client="connect",
        filter="RedisBloomFilter SHARD_SIZE",
        scalable="RedisScalableBloomFilter",
    )
