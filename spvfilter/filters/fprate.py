"""The false-positive rate of BIP-37 filters where none is chosen."""

DEFAULT_FP_RATE = 0.0001  # of a filter's tests of elements that were not added; ours
