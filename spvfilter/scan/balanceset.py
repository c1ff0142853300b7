"""The balances after the last block of an export: each script's unspent value and address, as one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any  # pyarrow has no types

from spvfilter.hashes import hash160
from spvfilter.network import Network
from spvfilter.scan.coinruns import unspent
from spvfilter.scan.exporttables import address_array, pyarrow, table_writer
from spvfilter.scan.sortedruns import RunForm, RunWriter, delete, merged
from spvfilter.scan.threadwork import until

_PUBKEY = "pubkey"  # the type of a P2PK script
_SIZES = {35: 33, 67: 65}  # size of a public key for each size of P2PK script, in bytes


def write_balances_table(
    path: Path,
    runs: Sequence[Path],
    temporary: Callable[[], Path],
    is_stopped: Callable[[], bool],
    *,
    network: Network,
    credits_p2pk: bool,
) -> None:
    """Write the balance of each script that has unspent coins as Parquet, sorted by script.

    Args:
        path: Path of the file.
        runs: The runs of coins from all parts of a chain.
        temporary: Function that returns the path of a new file for a run. These files are deleted.
        is_stopped: Function that returns True to stop the work, which then raises WorkStoppedError.
        network: The network of the addresses.
        credits_p2pk: True to count the coins of a public key toward its P2PKH address.

    Raises:
        OSError: A file cannot be read or written.
    """
    pa = pyarrow()
    form = RunForm(
        pa.schema([("script", pa.binary()), ("value", pa.int64()), ("coins", pa.int64())]),
        1,
        lambda table: _summed(pa, table),
    )
    run = temporary()
    writer = RunWriter(run, form)
    try:
        with writer.opened():
            for table in until(unspent(runs, temporary), is_stopped):
                if table.num_rows:
                    writer.add(_summed(pa, _balances(pa, table, credits_p2pk=credits_p2pk)))
        schema = pa.schema([("address", pa.string()), *form.schema])
        with table_writer(path, schema, few=["coins"], order=("script",)) as made:
            for table in until(merged([run], temporary, form), is_stopped):
                addresses = address_array(pa, table["script"].combine_chunks(), network)
                made.write_table(pa.Table.from_arrays([addresses, *table.columns], schema=schema))
    finally:
        delete([run])


def _balances(pa: Any, coins: Any, *, credits_p2pk: bool) -> Any:
    """Return a row for each coin: its script, its value, and a count of one."""
    scripts = coins["script"].combine_chunks()
    if credits_p2pk:
        is_pubkey = pa.compute.equal(coins["type"].cast(pa.string()), _PUBKEY).combine_chunks()
        if pa.compute.any(is_pubkey).as_py():
            paid = [_p2pkh_of(script) for script in scripts.filter(is_pubkey).to_pylist()]
            scripts = pa.compute.replace_with_mask(scripts, is_pubkey, pa.array(paid, pa.binary()))
    ones = pa.array([1], pa.int64()).take(pa.array([0] * coins.num_rows))
    return pa.table({"script": scripts, "value": coins["value"], "coins": ones})


def _p2pkh_of(script: bytes) -> bytes:
    """Return the P2PKH script of the key in a P2PK script."""
    key = script[1 : 1 + _SIZES[len(script)]]
    return b"\x76\xa9\x14" + hash160(key) + b"\x88\xac"


def _summed(pa: Any, table: Any) -> Any:
    """Add up the coins of each script, and return the sums sorted by script."""
    sums = table.group_by("script").aggregate([("value", "sum"), ("coins", "sum")])
    made = pa.table({"script": sums["script"], "value": sums["value_sum"], "coins": sums["coins_sum"]})
    return made.take(pa.compute.sort_indices(made, sort_keys=[("script", "ascending")]))
