"""The coins after the last block of an export: the unspent outputs, as one Parquet file."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any  # pyarrow has no types

from spvfilter.errors import SourceError
from spvfilter.network import Network
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.coinruns import unspent
from spvfilter.scan.exporttables import address_array, arrow_type, pyarrow, table_writer
from spvfilter.scan.plan import Plan
from spvfilter.scan.threadwork import until


def check_whole(plan: Plan) -> int:
    """Return the height of the last block of a plan, which must contain all blocks since the genesis block.

    The genesis block itself may be missing, because its coin cannot be spent. Raises SourceError if other blocks are
    missing, perhaps only because the node has not written them yet.
    """
    following: int | None = None
    for part in plan.parts:
        for block in part.blocks():
            height = block.ref.height
            if following is None:
                following = height if height == 0 else 1
            if height != following or not block.is_rooted:
                found = "a chain from another block" if height == following else _in_words(height)
                raise SourceError(
                    f"coins and balances need every block since the genesis block: expected height {following:,},"
                    f" found {found}. Add the files with the missing blocks, and omit --from-height and --from-date"
                )
            following += 1
    if following is None:
        raise SourceError("coins and balances need every block since the genesis block, but there are no blocks")
    return following - 1


def _in_words(height: int | None) -> str:
    return "a block of unknown height" if height is None else f"height {height:,}"


def state_path(directory: Path, table: str, height: int) -> Path:
    """Return the path of the file of a table, coins or balances, for the state at a height."""
    return directory / table / f"height={height:09}" / f"{table}.parquet"


def write_coins_table(
    path: Path,
    runs: Sequence[Path],
    temporary: Callable[[], Path],
    is_stopped: Callable[[], bool],
    *,
    network: Network,
    is_hex: bool,
) -> None:
    """Write the unspent coins from all runs of a chain as Parquet, sorted by outpoint.

    Raises OSError if a file cannot be read or written, and WorkStoppedError once `is_stopped` returns True.
    """
    pa = pyarrow()
    schema = pa.schema(
        [
            ("transaction_hash", pa.string() if is_hex else pa.binary(HASH_SIZE)),
            ("index", pa.int32()),
            ("block_number", pa.int32()),
            ("is_coinbase", pa.bool_()),
            ("type", arrow_type(pa, "outputs.type")),
            ("value", pa.int64()),
            ("script", pa.binary()),
            ("address", pa.string()),
        ]
    )
    few = ["index", "block_number", "is_coinbase", "type"]
    with table_writer(path, schema, few=few, order=("transaction_hash", "index")) as writer:
        for table in until(unspent(runs, temporary), is_stopped):
            if not table.num_rows:
                continue
            hashes = table["transaction_hash"].combine_chunks()
            heights = pa.compute.shift_right(table["order"], 1).cast(pa.int32())
            rest = [table[name] for name in schema.names[3:-1]]
            addresses = address_array(pa, table["script"].combine_chunks(), network)
            columns = [
                _in_hex(pa, hashes) if is_hex else hashes,
                table["index"].cast(pa.int32()),
                heights,
                *rest,
                addresses,
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _in_hex(pa: Any, hashes: Any) -> Any:
    """Return hashes as hex strings."""
    digits = 2 * HASH_SIZE
    text = b"".join(hashes.to_pylist()).hex().encode()
    offsets = array("i", range(0, len(text) + 1, digits))
    return pa.Array.from_buffers(pa.string(), len(hashes), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
