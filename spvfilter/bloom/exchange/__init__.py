"""Read and write Bloom filters of other programs: Parquet's split-block filters, Spark's BloomFilter, RedisBloom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.bloom.exchange.hashes import RedisBloomHash as RedisBloomHash, SparkHash as SparkHash
    from spvfilter.bloom.exchange.parquet import column_filters as column_filters
    from spvfilter.bloom.exchange.redisbloom import (
        read_redisbloom as read_redisbloom,
        redisbloom_filter as redisbloom_filter,
        write_redisbloom as write_redisbloom,
    )
    from spvfilter.bloom.exchange.spark import (
        read_spark as read_spark,
        spark_filter as spark_filter,
        write_spark as write_spark,
    )
    from spvfilter.bloom.exchange.splitblock import ParquetType as ParquetType, SplitBlockFilter as SplitBlockFilter
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        hashes="RedisBloomHash SparkHash",
        parquet="column_filters",
        redisbloom="read_redisbloom redisbloom_filter write_redisbloom",
        spark="read_spark spark_filter write_spark",
        splitblock="ParquetType SplitBlockFilter",
    )
