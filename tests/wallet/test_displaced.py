"""How far it is looked at what an unconfirmed transaction would displace: a few bytes of a stranger's cost little
work.
"""

from __future__ import annotations

import pytest

from spvfilter.network import REGTEST
from spvfilter.wallet.books import Books
from spvfilter.wallet.events import MatchFound, MatchWithdrawn
from spvfilter.wallet.saved import SavedBooks
from spvfilter.wallet.unconfirmed import MAX_DISPLACED, MAX_DISPLACED_OUTPUTS
from spvfilter.watch.watchlist import WatchList
from support.build import TxIn, TxOut, p2wpkh, tx, txid

OURS, THEIRS = p2wpkh(b"\x01" * 20), p2wpkh(b"\xee" * 20)
WIDE = 50  # transactions with many outputs, which spend coins 2, 3, …


def coin(number: int) -> TxIn:
    return TxIn(bytes([number]) * 32, 0)


@pytest.fixture
def books() -> Books:
    """Has a long chain of payments that begins with coin 1, and payments with many outputs."""
    watch = WatchList(REGTEST)
    watch.add_script(OURS)
    made = Books(watch, SavedBooks())
    spent = coin(1)
    for value in range(10 * MAX_DISPLACED):
        raw = tx([spent], [TxOut(2_000 - value, OURS)])
        assert made.add_unconfirmed(raw, 1)
        spent = TxIn(txid(raw), 0)
    for number in range(WIDE):
        outputs = [TxOut(9, OURS), *[TxOut(1, THEIRS)] * (MAX_DISPLACED_OUTPUTS // 5)]
        assert made.add_unconfirmed(tx([coin(2 + number)], outputs), 1)
    return made


@pytest.mark.parametrize("script", [OURS, THEIRS], ids=["to us", "to others"])
@pytest.mark.parametrize(
    ("coins", "most"), [([1], MAX_DISPLACED + 1), (range(2, 2 + WIDE), MAX_DISPLACED_OUTPUTS)], ids=["chain", "wide"]
)
def test_it_is_looked_at_no_further_than_it_takes_to_see_that_it_is_too_much(
    books: Books, script: bytes, coins: list[int], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = 0
    spenders = books.unconfirmed.spenders

    def counted(outpoint: bytes) -> list[bytes]:
        nonlocal looked_up
        looked_up += 1
        return spenders(outpoint)

    monkeypatch.setattr(books.unconfirmed, "spenders", counted)
    assert not books.add_unconfirmed(tx([coin(number) for number in coins], [TxOut(1, script)]), 2)
    assert looked_up <= most


def test_one_payment_with_many_outputs_is_displaced(books: Books) -> None:
    withdrawn, found = books.add_unconfirmed(tx([coin(2)], [TxOut(3, OURS)]), 2)
    assert isinstance(withdrawn, MatchWithdrawn)
    assert isinstance(found, MatchFound)
    assert (withdrawn.match.value, found.match.value) == (9, 3)
