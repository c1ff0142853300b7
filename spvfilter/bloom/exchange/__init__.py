"""Read other programs' Bloom filters, and write those of Parquet, Spark, RedisBloom and Guava."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.bloom.exchange.bitsandblooms import read_bits_and_blooms as read_bits_and_blooms
    from spvfilter.bloom.exchange.cassandra import read_cassandra as read_cassandra
    from spvfilter.bloom.exchange.foreignhashes import (
        BitsAndBloomsHash as BitsAndBloomsHash,
        CassandraHash as CassandraHash,
        GuavaHash as GuavaHash,
        Pybloomfiltermmap3Hash as Pybloomfiltermmap3Hash,
        PybloomLiveHash as PybloomLiveHash,
    )
    from spvfilter.bloom.exchange.guava import read_guava as read_guava, write_guava as write_guava
    from spvfilter.bloom.exchange.hashes import RedisBloomHash as RedisBloomHash, SparkHash as SparkHash
    from spvfilter.bloom.exchange.parquet import column_filters as column_filters
    from spvfilter.bloom.exchange.pybloomfiltermmap3 import read_pybloomfiltermmap3 as read_pybloomfiltermmap3
    from spvfilter.bloom.exchange.pybloomlive import (
        read_pybloom_live as read_pybloom_live,
        read_scalable_pybloom_live as read_scalable_pybloom_live,
    )
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
    from spvfilter.bloom.exchange.typedblock import (
        ParquetDecimal as ParquetDecimal,
        TypedBlockFilter as TypedBlockFilter,
        TypedKeys as TypedKeys,
    )
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        bitsandblooms="read_bits_and_blooms",
        cassandra="read_cassandra",
        foreignhashes="BitsAndBloomsHash CassandraHash GuavaHash Pybloomfiltermmap3Hash PybloomLiveHash",
        guava="read_guava write_guava",
        hashes="RedisBloomHash SparkHash",
        parquet="column_filters",
        pybloomfiltermmap3="read_pybloomfiltermmap3",
        pybloomlive="read_pybloom_live read_scalable_pybloom_live",
        redisbloom="read_redisbloom redisbloom_filter write_redisbloom",
        spark="read_spark spark_filter write_spark",
        splitblock="ParquetType SplitBlockFilter",
        typedblock="ParquetDecimal TypedBlockFilter TypedKeys",
    )
