"""Signatures of transactions: the hashes that they sign, signing, and checks against the spent coins."""

from spvfilter.signatures.curve import Curve, find_curve
from spvfilter.signatures.sighash import MAX_HASHED_SIZE, SIGHASH_ALL, SIGHASH_DEFAULT, SigHashes
from spvfilter.signatures.verify import InputCheck, SpendCheck, Validity, verify_input, verify_spends

__all__ = [
    "MAX_HASHED_SIZE",
    "SIGHASH_ALL",
    "SIGHASH_DEFAULT",
    "Curve",
    "InputCheck",
    "SigHashes",
    "SpendCheck",
    "Validity",
    "find_curve",
    "verify_input",
    "verify_spends",
]
