"""The compiled kernel, built from csrc/: the names that backend.py imports, with the signatures of the reference."""

from spvfilter.kernel.pure.address import decode_address as decode_address, encode_address as encode_address
from spvfilter.kernel.pure.bits import BitCore as BitCore, CounterCore as CounterCore
from spvfilter.kernel.pure.blocks import (
    bip37_scan_block as bip37_scan_block,
    bip37_scan_tx as bip37_scan_tx,
    block_txids as block_txids,
    block_txs as block_txs,
    check_amounts as check_amounts,
    check_block as check_block,
    is_p2pk as is_p2pk,
    is_pubkey as is_pubkey,
    merkle_branches as merkle_branches,
    merkle_root as merkle_root,
    multisig_keys as multisig_keys,
    parse_tx as parse_tx,
    spent_outpoints as spent_outpoints,
    strip_witness as strip_witness,
    txid as txid,
    walk_block as walk_block,
    walk_tx as walk_tx,
    wtxid as wtxid,
)
from spvfilter.kernel.pure.childkeys import child_keys as child_keys
from spvfilter.kernel.pure.columnlines import column_lines as column_lines
from spvfilter.kernel.pure.files import ReadBuffer as ReadBuffer, read_at as read_at
from spvfilter.kernel.pure.frames import joined_frames as joined_frames, sound_frames as sound_frames
from spvfilter.kernel.pure.fuse import (
    FuseCore as FuseCore,
    fuse_build as fuse_build,
    fuse_merge as fuse_merge,
)
from spvfilter.kernel.pure.gcs import GcsQuery as GcsQuery, gcs_build as gcs_build, gcs_check as gcs_check
from spvfilter.kernel.pure.headers import (
    chain_filter_headers as chain_filter_headers,
    filter_hashes as filter_hashes,
    find_header as find_header,
    header_bits as header_bits,
    header_hashes as header_hashes,
    index_headers as index_headers,
    join_indexes as join_indexes,
    judge_headers as judge_headers,
    linked_headers as linked_headers,
)
from spvfilter.kernel.pure.hitcolumns import hit_columns as hit_columns
from spvfilter.kernel.pure.merkleblock import extract_matches as extract_matches, parse_merkleblock as parse_merkleblock
from spvfilter.kernel.pure.packed import (
    add_hit_sums as add_hit_sums,
    count_hits as count_hits,
    hit_lines as hit_lines,
    hit_sums as hit_sums,
    is_ascending as is_ascending,
    pack_hits as pack_hits,
    unpack_hits as unpack_hits,
)
from spvfilter.kernel.pure.rows import row_mark as row_mark
from spvfilter.kernel.pure.scriptaddresses import script_addresses as script_addresses
from spvfilter.kernel.pure.series import SeriesCore as SeriesCore
from spvfilter.kernel.pure.silent import silent_candidate as silent_candidate
from spvfilter.kernel.pure.table import WatchTable as WatchTable
from spvfilter.kernel.pure.tables import block_columns as block_columns
from spvfilter.kernel.pure.thrift import thrift_end as thrift_end
from spvfilter.kernel.pure.undo import spent_coins as spent_coins
