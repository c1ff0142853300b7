"""The default false-positive rate of BIP-37 filters."""

DEFAULT_FP_RATE = 0.0001
"""Default false-positive rate of a BIP-37 filter (our choice).

This fraction of the elements that are not in the filter match by chance.
"""
