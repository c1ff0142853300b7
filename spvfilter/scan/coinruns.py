"""Sorted runs of coins on disk: the last event of each outpoint, created or spent. Merged runs give the unspent coins.

The rows of a run are sorted by outpoint, and each outpoint occurs once. The last event of an outpoint decides: a coin
that was created after its last spend is unspent. This also applies to the coinbases that were created twice (BIP-30).

As in Bitcoin Core, unspendable coins are not included: the coin of the genesis block, and coins whose script begins
with OP_RETURN or is longer than 10,000 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any  # pyarrow has no types

from spvfilter.kernel.blocktables import ColumnBuffers
from spvfilter.protocol import HASH_SIZE, MAX_SCRIPT_SIZE
from spvfilter.scan.exporttables import array_of, arrow_type, pyarrow
from spvfilter.scan.sortedruns import RunForm, RunWriter, merged

CREATED = (
    *("outputs.transaction_hash", "outputs.index", "outputs.block_number", "outputs.transaction_index"),
    *("outputs.value", "outputs.type", "outputs.script"),
)
"""The kernel's names of the columns that say which coins were created."""
SPENT = ("inputs.spent_transaction_hash", "inputs.spent_output_index", "inputs.block_number")
"""The kernel's names of the columns that say which coins were spent."""

_OP_RETURN = b"\x6a"
_KEY = ("transaction_hash", "index")
_ORDER = [(name, "ascending") for name in (*_KEY, "order")]


def run_schema(pa: Any) -> Any:
    """Return the schema of a run. A null value says that the coin was spent."""
    return pa.schema(
        [
            ("transaction_hash", pa.binary(HASH_SIZE)),
            ("index", pa.int64()),
            ("order", pa.int64()),  # twice the height, plus 1 for a spend: a block creates coins before it spends them
            ("is_coinbase", pa.bool_()),
            ("type", arrow_type(pa, "outputs.type")),
            ("value", pa.int64()),
            ("script", pa.binary()),
        ]
    )


class CoinRunWriter:
    """Writes a part's run: the last event of each outpoint in its blocks.

    Args:
        path: Path of the run.
    """

    def __init__(self, path: Path) -> None:
        self._pa = pyarrow()
        self._writer = RunWriter(path, _form(self._pa))

    def opened(self) -> AbstractContextManager[None]:
        """Return a context manager that completes the run at its end. Raises OSError."""
        return self._writer.opened()

    def add(self, columns: dict[str, ColumnBuffers]) -> None:
        """Add the events of some blocks, given as columns named in CREATED and SPENT. Raises OSError."""
        # together, since only created coins have the dictionary of types that all batches of a run share
        self._writer.add(self._pa.concat_tables([_created(self._pa, columns), _spent(self._pa, columns)]))


def _form(pa: Any) -> RunForm:
    """Return the form of a run of coins."""
    return RunForm(run_schema(pa), len(_KEY), lambda table: _last_events(pa, table))


def _created(pa: Any, columns: dict[str, ColumnBuffers]) -> Any:
    """Return the coins that blocks create, as a table of events."""
    pc = pa.compute
    txid, index, height, position, value, kind, script = (array_of(pa, name, columns[name]) for name in CREATED)
    table = pa.Table.from_arrays(
        [
            txid,
            index.cast(pa.int64()),
            pc.multiply(height.cast(pa.int64()), 2),
            pc.equal(position, 0),
            kind,
            value,
            script,
        ],
        schema=run_schema(pa),
    )
    can_spend = pc.invert(pc.starts_with(script, pattern=_OP_RETURN))
    can_spend = pc.and_(can_spend, pc.less_equal(pc.binary_length(script), MAX_SCRIPT_SIZE))
    return table.filter(pc.and_(can_spend, pc.greater(height, 0)))


def _spent(pa: Any, columns: dict[str, ColumnBuffers]) -> Any:
    """Return the coins that blocks spend, as a table of events."""
    pc = pa.compute
    txid, index, height = (array_of(pa, name, columns[name]) for name in SPENT)
    schema = run_schema(pa)
    nothing = [pa.nulls(len(txid), schema.field(name).type) for name in ("is_coinbase", "type", "value", "script")]
    order = pc.add(pc.multiply(height.cast(pa.int64()), 2), 1)
    return pa.Table.from_arrays([txid, index, order, *nothing], schema=schema)


def _last_events(pa: Any, table: Any) -> Any:
    """Return the last event of each outpoint, sorted by outpoint."""
    pc = pa.compute
    table = table.take(pc.sort_indices(table, sort_keys=_ORDER))
    rows = table.num_rows
    if rows < 2:
        return table
    hashes, indexes = (table[name].combine_chunks() for name in _KEY)
    again = pc.and_(
        pc.equal(hashes.slice(0, rows - 1), hashes.slice(1)), pc.equal(indexes.slice(0, rows - 1), indexes.slice(1))
    )
    return table.filter(pa.concat_arrays([pc.invert(again), pa.array([True])]))


def unspent(paths: Sequence[Path], temporary: Callable[[], Path]) -> Iterator[Any]:
    """Yield the unspent coins of any number of runs as Arrow tables, sorted by outpoint.

    Args:
        paths: The runs of all parts of a chain.
        temporary: Function that returns the path of a new file for a merged run. These files are deleted.

    Raises:
        OSError: A file cannot be read or written.
    """
    pa = pyarrow()
    for table in merged(paths, temporary, _form(pa)):
        yield table.filter(pa.compute.is_valid(table["value"]))
