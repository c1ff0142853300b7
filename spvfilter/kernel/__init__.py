"""The kernel: the hot loops, compiled or in Python. `BACKEND` names the backend, which is chosen once, at import.

"native" is compiled from csrc/. "pure" is the readable reference in Python. Both return equal results.

The environment variable SPVFILTER_BACKEND is "native", "pure" or "auto". The default, "auto", uses the compiled backend
if it is installed. Importing the package raises ParameterError for any other value, and BackendError (an ImportError)
if "native" is requested but missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter.kernel.backend import choose
from spvfilter.kernel.values import (
    COUNTER_BITS,
    MAX_PREFIX,
    MAX_SLICES,
    NO_ENTRY,
    NO_VALUE,
    PATTERN_KINDS,
    UPDATE_ALL,
    UPDATE_NONE,
    UPDATE_P2PUBKEY_ONLY,
    Encoding,
    EntryKind,
    Family,
    Flaw,
    Hit,
    Place,
    ProvedTx,
    ScriptType,
    SilentCandidate,
    SpentCoin,
    TxMatch,
    TxSpan,
    WatchedCoin,
)

BACKEND, _twin = choose()

if TYPE_CHECKING:  # both backends have the reference's signatures
    from spvfilter.kernel.pure.address import decode_address, encode_address
    from spvfilter.kernel.pure.bits import BitCore, CounterCore
    from spvfilter.kernel.pure.blocks import (
        bip37_scan_block,
        bip37_scan_tx,
        block_txids,
        block_txs,
        check_amounts,
        check_block,
        is_p2pk,
        is_pubkey,
        merkle_branches,
        merkle_root,
        multisig_keys,
        parse_tx,
        spent_outpoints,
        strip_witness,
        txid,
        walk_block,
        walk_tx,
        wtxid,
    )
    from spvfilter.kernel.pure.childkeys import child_keys
    from spvfilter.kernel.pure.columnlines import column_lines
    from spvfilter.kernel.pure.files import ReadBuffer, read_at
    from spvfilter.kernel.pure.frames import joined_frames, sound_frames
    from spvfilter.kernel.pure.fuse import FuseCore, fuse_build, fuse_merge
    from spvfilter.kernel.pure.gcs import GcsQuery, gcs_build, gcs_check
    from spvfilter.kernel.pure.headers import (
        chain_filter_headers,
        filter_hashes,
        find_header,
        header_bits,
        header_hashes,
        index_headers,
        join_indexes,
        judge_headers,
        linked_headers,
    )
    from spvfilter.kernel.pure.hitcolumns import hit_columns
    from spvfilter.kernel.pure.merkleblock import extract_matches, parse_merkleblock
    from spvfilter.kernel.pure.packed import (
        add_hit_sums,
        count_hits,
        hit_lines,
        hit_sums,
        is_ascending,
        pack_hits,
        unpack_hits,
    )
    from spvfilter.kernel.pure.rows import row_mark
    from spvfilter.kernel.pure.scriptaddresses import script_addresses
    from spvfilter.kernel.pure.series import SeriesCore
    from spvfilter.kernel.pure.silent import silent_candidate
    from spvfilter.kernel.pure.table import WatchTable
    from spvfilter.kernel.pure.tables import block_columns
    from spvfilter.kernel.pure.thrift import thrift_end
    from spvfilter.kernel.pure.undo import spent_coins
else:
    globals().update(_twin)

__all__ = [
    "BACKEND",
    "COUNTER_BITS",
    "MAX_PREFIX",
    "MAX_SLICES",
    "NO_ENTRY",
    "NO_VALUE",
    "PATTERN_KINDS",
    "UPDATE_ALL",
    "UPDATE_NONE",
    "UPDATE_P2PUBKEY_ONLY",
    "BitCore",
    "CounterCore",
    "Encoding",
    "EntryKind",
    "Family",
    "Flaw",
    "FuseCore",
    "GcsQuery",
    "Hit",
    "Place",
    "ProvedTx",
    "ReadBuffer",
    "ScriptType",
    "SeriesCore",
    "SilentCandidate",
    "SpentCoin",
    "TxMatch",
    "TxSpan",
    "WatchTable",
    "WatchedCoin",
    "add_hit_sums",
    "bip37_scan_block",
    "bip37_scan_tx",
    "block_columns",
    "block_txids",
    "block_txs",
    "chain_filter_headers",
    "check_amounts",
    "check_block",
    "child_keys",
    "column_lines",
    "count_hits",
    "decode_address",
    "encode_address",
    "extract_matches",
    "filter_hashes",
    "find_header",
    "fuse_build",
    "fuse_merge",
    "gcs_build",
    "gcs_check",
    "header_bits",
    "header_hashes",
    "hit_columns",
    "hit_lines",
    "hit_sums",
    "index_headers",
    "is_ascending",
    "is_p2pk",
    "is_pubkey",
    "join_indexes",
    "joined_frames",
    "judge_headers",
    "linked_headers",
    "merkle_branches",
    "merkle_root",
    "multisig_keys",
    "pack_hits",
    "parse_merkleblock",
    "parse_tx",
    "read_at",
    "row_mark",
    "script_addresses",
    "silent_candidate",
    "sound_frames",
    "spent_coins",
    "spent_outpoints",
    "strip_witness",
    "thrift_end",
    "txid",
    "unpack_hits",
    "walk_block",
    "walk_tx",
    "wtxid",
]
