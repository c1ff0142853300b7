"""The check of a transaction by a database: blocks, conflicts, replacements, refusals and the chain's time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spvfilter.errors import StoreCorruptError
from spvfilter.hashes import sha256d
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredMatch, StoredTx, TxStatus
from spvfilter.store.spentviews import StoreFacts
from spvfilter.store.txcheck import CheckCause, CheckFinding
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.match import Completeness
from store.test_views import OURS, Ledger, pay
from support.blocks.build import TxIn, TxOut, p2wpkh, tx, txid
from support.wallets.storesqlite import checked_rows, sqlite_of

THEIRS = p2wpkh(b"\xee" * 20)
TIME = 1_700_000_000


class Checked(Ledger):
    """A wallet with a confirmed coin, whose file checks transactions."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.mine(5)
        self.coin = self.put(pay(1, (1_000, OURS)), 3)
        self.views = WalletStore.open(path)

    def broadcast(self, raw: bytes, status: TxStatus = TxStatus.PENDING) -> bytes:
        hits = self.watch.table.scan_tx(raw) if status.counts else []
        matches = [StoredMatch(hit, None, None, Completeness.PROVEN) for hit in hits]
        self.store.commit(Batch(matches=matches, transactions={txid(raw): StoredTx(raw, status, 1, 7)}))
        return txid(raw)

    def spend(self, value: int) -> bytes:
        return tx([TxIn(self.coin, 0)], [TxOut(value, THEIRS)])

    def found(self, raw: bytes, cause: CheckCause) -> list[CheckFinding]:
        return [each for each in self.views.check(raw) if each.cause is cause]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Checked]:
    made = Checked(tmp_path / "w.db")
    with made.views, made.store:
        yield made


def test_a_spend_in_a_block_is_a_conflict(ledger: Checked) -> None:
    mined = ledger.spend(900)
    assert ledger.found(ledger.spend(800), CheckCause.CONFLICT) == []
    by = ledger.put(mined, 4)
    (found,) = ledger.found(ledger.spend(800), CheckCause.CONFLICT)
    assert (found.by, found.height) == (by, 4)
    (found,) = ledger.found(mined, CheckCause.CONFIRMED)
    assert (found.by, found.height) == (by, 4)


def test_a_pending_payment_of_this_wallet_is_replaced(ledger: Checked) -> None:
    foreign = ledger.spend(900)
    ledger.put(foreign, seen=6)
    assert ledger.found(ledger.spend(800), CheckCause.REPLACES) == []
    own = ledger.broadcast(foreign)
    assert [found.by for found in ledger.found(ledger.spend(800), CheckCause.REPLACES)] == [own]
    assert ledger.found(foreign, CheckCause.REPLACES) == []


def test_only_refused_bytes_are_refused_again(ledger: Checked) -> None:
    refused = ledger.spend(900)
    assert ledger.found(refused, CheckCause.REFUSED_BEFORE) == []
    ledger.broadcast(refused, TxStatus.REFUSED)
    assert len(ledger.found(refused, CheckCause.REFUSED_BEFORE)) == 1
    witness = tx([TxIn(ledger.coin, 0, witness=(b"\x01",))], [TxOut(900, THEIRS)])
    assert txid(witness) == txid(refused)
    assert ledger.found(witness, CheckCause.REFUSED_BEFORE) == []


@pytest.mark.parametrize(
    ("times", "median"),
    [
        ([], 1_296_688_602),  # of the genesis block
        ([9, 3], TIME + 3),
        ([*range(10, 0, -1)], TIME + 5),  # with the genesis block
        ([70, 60, *range(40, 29, -1)], TIME + 35),  # of the last 11 blocks
    ],
)
def test_a_lock_time_waits_for_the_median_time(times: list[int], median: int, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "w.db")
    for time in times:
        last = ledger.headers[-1]
        ledger.headers.append(last[:4] + sha256d(last) + last[36:68] + (TIME + time).to_bytes(4, "little") + last[72:])
    ledger.store.commit(Batch(headers=b"".join(ledger.headers[1:])))
    with WalletStore.open(tmp_path / "w.db") as wallet:
        for lock_time, is_locked in ((median - 1, False), (median, True)):
            raw = tx([TxIn(bytes(31) + b"\x09", 0, sequence=0)], [TxOut(900, THEIRS)], lock_time=lock_time)
            assert (CheckCause.LOCK_TIME in [each.cause for each in wallet.check(raw)]) == is_locked


def test_a_missing_header_has_no_time(ledger: Checked) -> None:
    facts = StoreFacts(checked_rows(ledger.store), sqlite_of(ledger.store), Path("w.db"), 6)
    assert facts.median_time(5) == 1_004
    with pytest.raises(StoreCorruptError, match="header at height 6 is missing or damaged"):
        facts.median_time(6)
