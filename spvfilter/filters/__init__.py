"""Bitcoin's probabilistic filters: BIP-37, Golomb-coded sets and BIP-158, with matching and verification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.filters.batch import (
        BlockFilter as BlockFilter,
        ScriptSource as ScriptSource,
        match_filters as match_filters,
    )
    from spvfilter.filters.bip37 import (
        Bip37Filter as Bip37Filter,
        BloomSource as BloomSource,
        MatchedTx as MatchedTx,
        UpdateFlags as UpdateFlags,
        filter_hash_funcs as filter_hash_funcs,
        filter_size as filter_size,
    )
    from spvfilter.filters.bip158 import (
        BasicFilter as BasicFilter,
        basic_data as basic_data,
        filter_elements as filter_elements,
        filter_hash as filter_hash,
        filter_header as filter_header,
        filter_headers as filter_headers,
    )
    from spvfilter.filters.exposure import (
        Exposure as Exposure,
        SampledRate as SampledRate,
        bitcoinj_filter as bitcoinj_filter,
        joint_rate as joint_rate,
        sample_rate as sample_rate,
    )
    from spvfilter.filters.fprate import DEFAULT_FP_RATE as DEFAULT_FP_RATE
    from spvfilter.filters.gcs import GcsQuery as GcsQuery, GolombCodedSet as GolombCodedSet
    from spvfilter.filters.privacy import (
        PrivacyCase as PrivacyCase,
        PrivacyReport as PrivacyReport,
        privacy_report as privacy_report,
    )
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        batch="BlockFilter ScriptSource match_filters",
        bip158="BasicFilter basic_data filter_elements filter_hash filter_header filter_headers",
        bip37="Bip37Filter BloomSource MatchedTx UpdateFlags filter_hash_funcs filter_size",
        exposure="Exposure SampledRate bitcoinj_filter joint_rate sample_rate",
        fprate="DEFAULT_FP_RATE",
        gcs="GcsQuery GolombCodedSet",
        privacy="PrivacyCase PrivacyReport privacy_report",
    )
