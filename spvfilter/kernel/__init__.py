"""The hot loops. This package chooses their backend once, at import; `BACKEND` says which."""

from __future__ import annotations

from spvfilter.kernel.pure import (
    UPDATE_ALL,
    UPDATE_NONE,
    UPDATE_P2PUBKEY_ONLY,
    TxMatch,
    TxSpan,
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
from spvfilter.kernel.pure_bits import COUNTER_LIMIT, BitCore, CounterCore
from spvfilter.kernel.pure_cells import Encoding, Family
from spvfilter.kernel.pure_table import NO_ENTRY, NO_VALUE, Coin, EntryKind, Hit, WatchTable

BACKEND = "pure"

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
    "Hit",
    "TxMatch",
    "TxSpan",
    "WatchTable",
    "bip37_scan_block",
    "bip37_scan_tx",
    "check_block",
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
