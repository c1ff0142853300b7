"""Blocks that no node would accept: both kernels have the same rows and errors, whatever the list knows before."""

from __future__ import annotations

import pytest

from spvfilter.errors import FormatError
from spvfilter.kernel import EntryKind, WatchTable, native
from spvfilter.kernel.pure.blocks import parse_tx
from spvfilter.kernel.pure.table import WatchTable as Reference
from spvfilter.protocol import MAX_MONEY
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.blocks.undo import Spent, record_of, undo_of

SCRIPT = b"\x76\xa9\x14" + bytes(20) + b"\x88\xac"
PAID = build.tx([TxIn(bytes([1]) * 32, 0)], [TxOut(7, SCRIPT), TxOut(8, SCRIPT)])
SPENDS = build.tx([TxIn(build.txid(PAID), 0)], [TxOut(7, b"\x51")])
AGAIN = build.tx([TxIn(build.txid(SPENDS), 0), TxIn(build.txid(PAID), 1)], [TxOut(6, SCRIPT)])


@pytest.fixture(params=["native", "reference"])
def table(request: pytest.FixtureRequest) -> type[WatchTable]:
    if request.param == "reference":
        return Reference
    if native is None:
        pytest.skip("the kernel is not compiled")
    return native.WatchTable


def block_with(*txs: bytes) -> bytes:
    return build.block(bytes(32), [build.coinbase(1), *txs])


def table_with(table: type[WatchTable]) -> WatchTable:
    made = table()
    made.add(EntryKind.SCRIPT, SCRIPT)
    return made


@pytest.mark.parametrize(
    "txs",
    [
        (SPENDS, PAID),
        (AGAIN, SPENDS, PAID),
        (PAID, AGAIN, SPENDS),
        (AGAIN, PAID, SPENDS),
        (SPENDS, build.tx([TxIn(build.txid(PAID), 0)], [TxOut(6, b"\x52")]), PAID),
        (build.tx([TxIn(build.txid(PAID), 0), TxIn(build.txid(PAID), 0)], [TxOut(14, b"\x51")]), PAID),
        (PAID, build.tx([TxIn(build.txid(PAID), 0), TxIn(build.txid(PAID), 0)], [TxOut(14, b"\x51")])),
    ],
)
def test_a_block_has_the_rows_of_a_second_pass(table: type[WatchTable], txs: tuple[bytes, ...]) -> None:
    raw = block_with(*txs)
    found = table()
    first = table_with(table).scan_block(raw, found)
    assert table_with(table).scan_block(raw, found) == first
    assert [(hit.position, not hit.spend, hit.n) for hit in first] == sorted(
        (hit.position, not hit.spend, hit.n) for hit in first
    )
    spent = [hit for hit in first if hit.spend]
    outpoints = {hit.outpoint for hit in first if not hit.spend}
    inputs = [tx[at : at + 36] for tx in txs for at, _, _ in parse_tx(tx).inputs]
    assert [hit.outpoint for hit in spent] == [outpoint for outpoint in inputs if outpoint in outpoints]
    assert {hit.script for hit in spent} == {SCRIPT}


@pytest.mark.parametrize("values", [(MAX_MONEY + 1,), (2**63,), (2**64 - 1,), (MAX_MONEY, 1), (2**63 - 1, 2**63 + 1)])
@pytest.mark.parametrize("script", [SCRIPT, b"\x51"])
def test_more_than_all_coins_is_an_error(table: type[WatchTable], values: tuple[int, ...], script: bytes) -> None:
    rich = build.tx(
        [TxIn(bytes([1]) * 32, 0)], [TxOut(value if value < 2**63 else value - 2**64, script) for value in values]
    )
    raw = block_with(PAID, rich)
    record = record_of(raw, undo_of([[Spent(20, SCRIPT)], [Spent(MAX_MONEY, SCRIPT)]]))
    for undo in (None, record):
        with pytest.raises(FormatError, match="must be from 0 to 2100000000000000 satoshi") as error:
            table_with(table).scan_block(raw, None, undo)
        assert (error.value.field, error.value.offset) == ("output values", raw.index(rich))
    (outcome,) = table_with(table).scan_blocks([raw], packed=True)
    assert isinstance(outcome, FormatError)


def test_all_coins_are_no_error(table: type[WatchTable]) -> None:
    rich = build.tx([TxIn(bytes([1]) * 32, 0)], [TxOut(MAX_MONEY, SCRIPT), TxOut(0, SCRIPT)])
    assert len(table_with(table).scan_block(block_with(PAID, rich))) == 4


def test_malformed_data_comes_before_amounts(table: type[WatchTable]) -> None:
    raw = block_with(build.tx([TxIn(bytes([1]) * 32, 0)], [TxOut(-(2**63), SCRIPT)]), PAID)
    with pytest.raises(FormatError) as error:
        table_with(table).scan_block(raw[:-1])
    assert error.value.field != "output values"
