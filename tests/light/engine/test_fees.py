"""The fee floor: the peers' fee filters, their median, and the warning of a broadcast below it."""

from __future__ import annotations

import random

import pytest

from spvfilter import primitives, transaction
from spvfilter.chain import HeaderChain
from spvfilter.errors import FormatError, ParameterError
from spvfilter.hashes import hash160
from spvfilter.light.engine.coverage import Coverage
from spvfilter.light.engine.effects import Emit
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.fees import fee_floor
from spvfilter.light.engine.filterrows import FilterRows
from spvfilter.light.engine.inputs import BroadcastAsked, Heard, Input, Instant, Lost, PeerConnected
from spvfilter.light.engine.options import Options
from spvfilter.light.engine.peers import PeerState
from spvfilter.light.engine.saved import Saved
from spvfilter.light.events import FeeFloor, FeeWarning
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.protocol import MAX_MONEY
from spvfilter.store.txcheck import check_input_values
from spvfilter.transaction import Transaction
from spvfilter.wallet.saved import SavedBooks
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages import table as wire
from support.blocks.build import TxIn, TxOut, p2wpkh, tx
from support.blocks.locks import build_tx, key

NOW = Instant(0.0, 1_700_000_000.0)
OURS, THEIRS = (p2wpkh(hash160(key(number))) for number in (1, 2))


class Run:
    """An engine with connected peers."""

    def __init__(self, peers: int) -> None:
        watch = WatchList(REGTEST)
        watch.add_script(OURS)
        saved = Saved(HeaderChain(REGTEST), FilterRows(), SavedBooks(), Coverage(), {}, None, bytes(32))
        self.engine = ClientEngine(
            Options(), watch, saved, [f"10.{number}.0.1:1" for number in range(peers)], random.Random(1)
        )
        self.engine.start(NOW)
        for number in range(1, peers + 1):
            self.do(PeerConnected(number, f"10.{number}.0.1", 0x4D, 0, True, True, "/x/", int(NOW.wall)))
            self.do(Heard(number, wire.Headers(())))

    def do(self, event: Input) -> list[FeeWarning]:
        effects = self.engine.step(event, NOW)
        return [each.event for each in effects if isinstance(each, Emit) and isinstance(each.event, FeeWarning)]

    def tell(self, *rates: int) -> None:
        for number, rate in enumerate(rates, 1):
            self.do(Heard(number, wire.FeeFilter(rate)))

    @property
    def floor(self) -> FeeFloor | None:
        return fee_floor(self.engine.pool.connected())


@pytest.mark.parametrize(
    ("rates", "median"),
    [([], None), ([1_000], 1_000), ([5_000, 1_000], 1_000), ([8_999_999, 7], 7), ([9, 1, 8_999_999], 9), ([0], 0)],
)
def test_the_floor_is_the_median_with_the_number_of_peers(rates: list[int], median: int | None) -> None:
    run = Run(4)
    run.tell(*rates)
    assert run.floor == (None if median is None else FeeFloor(median, len(rates)))


@pytest.mark.parametrize("rate", [9_170_997, MAX_MONEY])
def test_an_initial_download_has_no_part_in_the_floor(rate: int) -> None:
    """Electrum wallets take the floor for the least fee rate, and give change that it makes dust to the miner."""
    run = Run(3)
    run.tell(rate)
    assert run.floor is None
    run.tell(rate, 5_000, 1_000)
    assert run.floor == FeeFloor(1_000, 2)


def test_the_latest_values_of_connected_peers_count() -> None:
    run = Run(2)
    run.tell(1_000, 3_000)
    run.tell(2_000)
    assert run.floor == FeeFloor(2_000, 2)
    run.do(Lost(2, ConnectionResetError("gone")))
    assert run.floor == FeeFloor(2_000, 1)


def test_the_lowest_value_of_a_group_counts() -> None:
    run = Run(3)
    run.tell(1_000, 2_000, 3_000)
    run.engine.pool.connected()[2].group = run.engine.pool.connected()[1].group
    assert run.floor == FeeFloor(1_000, 2)
    run.engine.pool.move(run.engine.pool.connected()[0], PeerState.GREETING)
    assert run.floor == FeeFloor(2_000, 1)


@pytest.mark.parametrize("rate", [-1, MAX_MONEY + 1, -(1 << 63), (1 << 63) - 1])
def test_an_impossible_rate_is_ignored(rate: int) -> None:
    run = Run(1)
    run.tell(1_000)
    run.tell(rate)
    assert run.floor == FeeFloor(1_000, 1)


def spend(value: int, parent: bytes = bytes(32)) -> bytes:
    return tx([TxIn(parent, 0)], [TxOut(value, THEIRS)])


def test_a_broadcast_below_the_fee_floor_causes_a_warning() -> None:
    run = Run(1)
    run.tell(1_000)
    raw = spend(99_000)
    size = Transaction.parse(raw).virtual_size
    assert run.do(BroadcastAsked(spend(100_000 - size), (100_000,))) == []
    assert run.do(BroadcastAsked(spend(100_000 - size + 1), (100_000,))) == []  # the only peer will refuse it
    assert run.do(BroadcastAsked(spend(100_000 - size + 1), (100_000,), is_forced=True)) == [
        FeeWarning(Transaction.parse(spend(100_000 - size + 1)).txid, (size - 1) * 1_000 // size, FeeFloor(1_000, 1))
    ]


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_an_unrecorded_transaction_causes_no_warning(is_confirmed: bool) -> None:
    run = Run(1)
    run.tell(1_000)
    raw = spend(99_999)
    books = run.engine.books
    if is_confirmed:
        books.broadcast(raw, 1)
        books.connect(ScannedBlock(0, bytes(32), [FoundTx(1, raw)]), ())
        assert books.facts.is_confirmed(Transaction.parse(raw).txid)
    assert run.do(BroadcastAsked(raw, (100_000,), is_private=not is_confirmed)) == []  # no other address is known
    assert is_confirmed or run.do(BroadcastAsked(raw, (100_000,), is_forced=True))


def test_an_unknown_floor_or_fee_causes_no_warning() -> None:
    assert Run(1).do(BroadcastAsked(spend(100_000), (100_000,))) == []
    run = Run(1)
    run.tell(1_000)
    assert run.do(BroadcastAsked(spend(100_000))) == []


def test_known_inputs_suffice_for_the_fee_warning() -> None:
    run = Run(1)
    run.tell(1_000)
    parent = tx([TxIn(bytes(32), 0)], [TxOut(50_000, OURS), TxOut(20_000, THEIRS)])
    run.engine.books.observe(parent, 1)
    txid = Transaction.parse(parent).txid
    ours, theirs = (
        transaction.TxIn(OutPoint(txid, n), spent=primitives.TxOut(value, script))
        for n, (value, script) in enumerate([(50_000, OURS), (20_000, THEIRS)])
    )
    free = build_tx([ours], [primitives.TxOut(50_000, THEIRS)])
    assert [warning.rate for warning in run.do(BroadcastAsked(free, is_forced=True))] == [0]
    # the second output is foreign, but its transaction is known
    both = build_tx([ours, theirs], [primitives.TxOut(70_000, THEIRS)])
    assert [warning.rate for warning in run.do(BroadcastAsked(both, is_forced=True))] == [0]
    unknown = tx([TxIn(txid, 0), TxIn(b"\x07" * 32, 1)], [TxOut(70_000, THEIRS)])
    assert run.do(BroadcastAsked(unknown)) == []
    missing = tx([TxIn(txid, 9)], [TxOut(1, THEIRS)])
    assert run.do(BroadcastAsked(missing)) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((), "expected 1 value, one for each input, got 0"),
        ((1, 2), "expected 1 value, one for each input, got 2"),
        ((-1,), "-1 is not an amount in satoshi"),
        ((MAX_MONEY + 1,), f"{MAX_MONEY + 1} is not an amount in satoshi"),
        ((99_999,), "the inputs are worth 99999 satoshi, but the outputs are worth 100000"),
    ],
)
def test_impossible_input_values_are_refused(values: tuple[int, ...], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        check_input_values(Transaction.parse(spend(100_000)), values)


def test_a_malformed_feefilter_raises() -> None:
    for payload in (bytes(7), bytes(9), b""):
        with pytest.raises(FormatError):
            wire.FeeFilter.parse(payload)
