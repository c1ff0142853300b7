"""The hot loops. This package chooses their backend once, at import; `BACKEND` says which.

"native" is compiled from csrc/, "pure" is its readable twin; they give equal results. SPVFILTER_BACKEND=native|pure|auto
chooses, auto takes the compiled one where it is installed. Raises ParameterError for another value of it, BackendError (an
ImportError) where native is forced and missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter.kernel.backend import choose
from spvfilter.kernel.values import (
    COUNTER_LIMIT,
    NO_ENTRY,
    NO_VALUE,
    UPDATE_ALL,
    UPDATE_NONE,
    UPDATE_P2PUBKEY_ONLY,
    Coin,
    Encoding,
    EntryKind,
    Family,
    Hit,
    TxMatch,
    TxSpan,
)

BACKEND, _twin = choose()

if TYPE_CHECKING:  # the reference's signatures are those of both
    from spvfilter.kernel.pure.address import decode_address
    from spvfilter.kernel.pure.bits import BitCore, CounterCore
    from spvfilter.kernel.pure.blocks import (
        bip37_scan_block,
        bip37_scan_tx,
        check_block,
        is_p2pk,
        is_pubkey,
        merkle_root,
        multisig_keys,
        parse_tx,
        strip_witness,
        txid,
        walk_block,
        walk_tx,
        wtxid,
    )
    from spvfilter.kernel.pure.gcs import GcsQuery, gcs_build, gcs_check
    from spvfilter.kernel.pure.headers import header_hashes
    from spvfilter.kernel.pure.table import WatchTable
else:
    globals().update(_twin)

__all__ = [
    "BACKEND",
    "COUNTER_LIMIT",
    "NO_ENTRY",
    "NO_VALUE",
    "UPDATE_ALL",
    "UPDATE_NONE",
    "UPDATE_P2PUBKEY_ONLY",
    "BitCore",
    "Coin",
    "CounterCore",
    "Encoding",
    "EntryKind",
    "Family",
    "GcsQuery",
    "Hit",
    "TxMatch",
    "TxSpan",
    "WatchTable",
    "bip37_scan_block",
    "bip37_scan_tx",
    "check_block",
    "decode_address",
    "gcs_build",
    "gcs_check",
    "header_hashes",
    "is_p2pk",
    "is_pubkey",
    "merkle_root",
    "multisig_keys",
    "parse_tx",
    "strip_witness",
    "txid",
    "walk_block",
    "walk_tx",
    "wtxid",
]
