"""Transactions by scripts, fees and parents of unconfirmed ones, and merkle branches with their transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spvfilter.errors import StoreCorruptError
from spvfilter.hashes import sha256d
from spvfilter.kernel import NO_VALUE, Hit
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredMatch, StoredTx, TxStatus
from spvfilter.store.place import MEMORY
from spvfilter.store.scriptviews import OutputEffect, TxProof
from spvfilter.store.store import Store
from spvfilter.watch.match import Completeness
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, p2wpkh, tx, txid
from support.wallets.storesqlite import sqlite_of

OURS, FOREIGN = p2wpkh(b"\x01" * 20), p2wpkh(b"\x02" * 20)
BRANCH = bytes(range(64))


class Ledger:
    """A database with three blocks, and transactions that are put into it by hand."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.watch = WatchList(REGTEST)
        self.watch.add_script(OURS)
        store.attach(self.watch)
        headers = [REGTEST.genesis]
        for _ in range(2):
            last = headers[-1]
            headers.append(last[:4] + sha256d(last) + last[36:])
        self.hashes = [sha256d(each) for each in headers]
        store.commit(Batch(headers=b"".join(headers)))

    def put(self, raw: bytes, height: int | None = None, *, branch: bytes | None = None) -> bytes:
        hits = [hit._replace(position=3) for hit in self.watch.table.scan_tx(raw)]
        self.watch.table.learn(hits)
        self.commit(raw, hits, height)
        if branch is not None and height is not None:
            self.store.commit(Batch(branches={txid(raw): (self.hashes[height], branch)}))
        return txid(raw)

    def commit(self, raw: bytes, hits: list[Hit], height: int | None) -> None:
        block = None if height is None else self.hashes[height]
        status, at = (TxStatus.PENDING, None) if height is None else (TxStatus.CONFIRMED, 3)
        row = StoredTx(raw, status, None, block_hash=block, height=height, position=at)
        matches = [StoredMatch(hit, block, height, Completeness.PROVEN) for hit in hits]
        self.store.commit(Batch(matches=matches, transactions={txid(raw): row}))


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Store.open(MEMORY, REGTEST) as store:
        yield Ledger(store)


def paying(value: int, *spent: bytes, script: bytes = OURS) -> bytes:
    return tx([TxIn(each, 0) for each in spent or [bytes(31) + b"\x07"]], [TxOut(value, script)])


def test_confirmed_transaction_has_its_effects(ledger: Ledger) -> None:
    first = ledger.put(paying(90), 1)
    second = ledger.put(paying(80, first, script=FOREIGN), 2)
    found = {each.txid: each for each in ledger.store.views.effects()}
    outpoint = first + bytes(4)
    assert (found[first].height, found[first].position) == (1, 3)
    assert found[first].effects == (OutputEffect(OURS, outpoint, 90, False),)
    assert found[second].effects == (OutputEffect(OURS, outpoint, 90, True),)
    assert [each.txid for each in ledger.store.views.effects([second])] == [second]


def test_fee_is_known_only_if_every_input_is_known(ledger: Ledger) -> None:
    first = ledger.put(paying(90), 1)
    known = ledger.put(paying(70, first))
    mixed = ledger.put(paying(50, known, bytes(31) + b"\x09"))
    found = {each.txid: each for each in ledger.store.views.effects([known, mixed])}
    assert (found[known].fee, found[known].has_unconfirmed_parent) == (20, False)
    assert (found[mixed].fee, found[mixed].has_unconfirmed_parent) == (0, True)


def test_value_of_an_input_comes_from_a_known_parent(ledger: Ledger) -> None:
    parent = ledger.put(tx([TxIn(bytes(31) + b"\x07", 0)], [TxOut(40, FOREIGN), TxOut(60, OURS)]), 1)
    child = ledger.put(paying(35, parent))  # spends the foreign output
    (found,) = ledger.store.views.effects([child])
    assert (found.txid, found.fee, found.parents) == (child, 5, (parent,))
    assert ledger.store.views.effects([]) == []


def test_spend_of_a_missing_output_has_no_fee(ledger: Ledger) -> None:
    """The books have forgotten a deep parent, so such a transaction of two colluding peers counts as pending."""
    parent = ledger.put(paying(90), 1)
    child = ledger.put(tx([TxIn(parent, 1)], [TxOut(35, OURS)]))
    (found,) = ledger.store.views.effects([child])
    assert (found.txid, found.fee, found.parents) == (child, 0, (parent,))


def test_unknown_value_of_a_match_counts_as_zero(ledger: Ledger) -> None:
    raw = paying(90)
    hit = Hit(True, 3, txid(raw), 0, bytes(36), NO_VALUE, OURS, 0)
    ledger.commit(raw, [hit], 1)
    (found,) = ledger.store.views.effects()
    assert found.effects == (OutputEffect(OURS, bytes(36), 0, True),)


def test_outputs_of_the_genesis_block_are_left_out(ledger: Ledger) -> None:
    ledger.put(paying(90), 0)
    assert ledger.store.views.effects() == []


def test_branch_belongs_to_the_block_of_its_transaction(ledger: Ledger) -> None:
    raw = paying(90)
    found = ledger.put(raw, 1, branch=BRANCH)
    proved = TxProof(found, raw, TxStatus.CONFIRMED, False, 1, ledger.hashes[1], 3, BRANCH)
    assert ledger.store.views.proof(found) == proved
    ledger.put(raw, 2)
    assert ledger.store.views.proof(found) == TxProof(
        found, raw, TxStatus.CONFIRMED, False, 2, ledger.hashes[2], 3, None
    )
    ledger.put(raw, 2, branch=BRANCH[:32])
    assert ledger.store.views.proof(found) == TxProof(
        found, raw, TxStatus.CONFIRMED, False, 2, ledger.hashes[2], 3, BRANCH[:32]
    )
    assert ledger.store.views.proof(bytes(32)) is None
    pending = ledger.put(paying(5, found))
    assert ledger.store.views.proof(pending) == TxProof(
        pending, paying(5, found), TxStatus.PENDING, False, None, None, None, None
    )


def test_confirmed_transactions_are_found_among_many(ledger: Ledger) -> None:
    here, there, pending = ledger.put(paying(90), 1), ledger.put(paying(91), 2), ledger.put(paying(92))
    first = ledger.put(paying(93), 1)
    others = [number.to_bytes(32, "big") for number in range(1_200)]
    asked = [first, *others, there, here, pending, bytes(32)]
    assert ledger.store.views.confirmed_in(ledger.hashes[1], asked) == {first, here}
    assert ledger.store.views.confirmed_in(ledger.hashes[0], asked) == frozenset()


def test_a_transaction_shows_its_status_and_its_txid(ledger: Ledger) -> None:
    found = ledger.put(paying(90), 1)
    (shown,) = ledger.store.views.effects([found])
    proof = ledger.store.views.proof(found)
    assert proof is not None
    assert (shown.status, shown.txid_hex, proof.txid_hex) == (TxStatus.CONFIRMED, *[found[::-1].hex()] * 2)
    assert proof.block_hash_hex == ledger.hashes[1][::-1].hex()


def test_branch_is_removed_with_its_transaction(ledger: Ledger) -> None:
    found = ledger.put(paying(90), 2, branch=BRANCH)
    ledger.store.commit(Batch(fork=1))
    assert sqlite_of(ledger.store).execute("SELECT count(*) FROM branches").fetchone() == (0,)
    assert ledger.store.views.proof(found) is None


@pytest.mark.parametrize("branch", [bytes(31), bytes(33), bytes(16 * 32)])
def test_malformed_branch_is_not_stored(branch: bytes, ledger: Ledger) -> None:
    with pytest.raises(StoreCorruptError, match="contradicts itself"):
        ledger.put(paying(90), 1, branch=branch)
